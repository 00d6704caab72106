#pragma once
// Drives completion queues: spins for a while after the last work, then arms, polls once more and
// parks on the completion channel.

#include <cstddef>
#include <memory>
#include <vector>

#include "base/time.hpp"
#include "engine/event_loop.hpp"

namespace rvget::engine {

/// All calls on the strand. The loop outlives it.
class reactor final : public continuation, public std::enable_shared_from_this<reactor> {
public:
    /// `spin`: how long to poll after the last completion before parking; 0 parks at once.
    reactor(event_loop& loop, duration spin) : loop_(loop), spin_(spin) {}

    void watch(std::shared_ptr<completion_source> source);
    void unwatch(const completion_source& source);
    void expect_completions();
    /// Unwatches everything.
    void clear();

    void resume() override;  ///< one turn of polling

private:
    struct watched;
    bool look(watched& w);
    bool park(watched& w);
    void on_event(watched& w);
    void schedule();
    [[nodiscard]] bool any_polling() const;
    [[nodiscard]] time_point end_of_spin() const;

    event_loop& loop_;
    const duration spin_;
    std::vector<std::shared_ptr<watched>> watched_;
    bool scheduled_ = false;
};

}  // namespace rvget::engine
