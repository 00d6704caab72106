#pragma once
// The memory windows of one lane's owner end: a type-2 window a lease, bound on the very queue pair
// that the consumer READs through, so that its key opens one range on one connection.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/lease_key.hpp"

namespace rvget::engine {

/// Lives on the strand. Posts on a queue pair that it borrows until close(). Windows are allocated
/// after the queue pair and go before it: rxe blocks for 50 s in the destruction of a queue pair
/// with a window bound.
class window_keys final : public std::enable_shared_from_this<window_keys> {
public:
    /// Binds and invalidations posted at once; the queue pair has room for them and one marker.
    static constexpr std::uint32_t most_posted = 63;
    static constexpr std::size_t first_windows = 8;

    using windows = std::vector<std::unique_ptr<fabric::memory_window>>;
    /// Blocking: `count` windows of `device`.
    static result<windows> allocate(fabric::device& device, std::size_t count);

    /// `on_failed` hears once that the queue pair takes no more requests.
    window_keys(services& s, fabric::queue_pair& queue_pair, windows first,
                unique_function<void(const failure&)> on_failed);
    ~window_keys();
    window_keys(const window_keys&) = delete;
    window_keys& operator=(const window_keys&) = delete;

    /// Binds a window over `range`, which lies in `memory`'s region; `done` runs when it is bound.
    void make(std::shared_ptr<const slot_memory> memory, std::span<const std::byte> range,
              lease_key_made done);
    void on_completion(const fabric::completion& c);

    /// The queue pair is in error: posts nothing more; keys on their way fail, keys that are
    /// revoked wait for gone().
    void close(const failure& why);
    [[nodiscard]] std::uint32_t posted() const noexcept {
        return static_cast<std::uint32_t>(posted_.size());
    }
    /// For destruction on a worker thread, before the queue pair. Precondition: closed and drained.
    [[nodiscard]] windows take_windows();
    /// Windows and queue pair are destroyed: no key reads any more.
    void gone();

private:
    struct window;
    class key;
    struct request {
        std::shared_ptr<const slot_memory> memory;
        std::span<const std::byte> range;
        lease_key_made done;
    };
    struct posted_work {
        std::uint64_t id = 0;
        std::shared_ptr<window> on;
    };

    void pump();
    void grow();
    bool post_bind(request r);
    bool post_invalidate(const std::shared_ptr<window>& w);
    void revoke(const std::shared_ptr<window>& w, unique_function<void()> proven);
    void note_posted(std::uint64_t id, std::shared_ptr<window> w);
    void add(windows more);
    void failed(const failure& why);

    services& s_;
    fabric::queue_pair& queue_pair_;
    unique_function<void(const failure&)> on_failed_;
    bool closed_ = false;
    bool growing_ = false;
    std::uint64_t next_id_ = 1;
    std::vector<std::shared_ptr<window>> all_;
    std::vector<std::shared_ptr<window>> free_;
    std::deque<request> waiting_;
    std::deque<std::shared_ptr<window>> to_invalidate_;
    std::deque<posted_work> posted_;  ///< in order, as a send queue completes
    failure why_closed_;
};

}  // namespace rvget::engine
