#pragma once
// An event descriptor that is made on first demand: readable while the flag is raised.

namespace rvget::fabric::sim {

/// Not synchronised; its owner's mutex guards it.
class event_flag {
public:
    event_flag() = default;
    ~event_flag();
    event_flag(const event_flag&) = delete;
    event_flag& operator=(const event_flag&) = delete;

    void raise() noexcept;
    void lower() noexcept;
    /// The eventfd, made now if there is none yet; -1 when the system has none left.
    int descriptor() noexcept;

private:
    int descriptor_ = -1;
    bool raised_ = false;
};

}  // namespace rvget::fabric::sim
