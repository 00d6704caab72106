#pragma once
// What the parts of the runtime (reactor, links, network) use beyond the engine's environment. The
// one implementation stands over Asio; the parts themselves need none of it.

#include <memory>

#include "engine/environment.hpp"

namespace rvget::engine {

/// Told of a descriptor's readiness, on the strand. May be told once more after the descriptor was
/// destroyed, when the news was already on its way.
class readiness_listener {
public:
    virtual ~readiness_listener() = default;
    virtual void readable() = 0;
    virtual void writable() = 0;
};

/// A file descriptor that can be waited for. Closes it in the end; waits still pending then end
/// without a word.
class descriptor {
public:
    virtual ~descriptor() = default;
    [[nodiscard]] virtual int native() const noexcept = 0;
    /// Tells `listener` once, at the next turn in which the descriptor is readable (at once when it
    /// is now), or in error. At most one such wait at a time, and one of the other kind.
    virtual void await_readable(std::shared_ptr<readiness_listener> listener) = 0;
    virtual void await_writable(std::shared_ptr<readiness_listener> listener) = 0;
};

/// Something to go on with, on the strand.
class continuation {
public:
    virtual ~continuation() = default;
    virtual void resume() = 0;
};

/// Told, with the strand held, that the runtime is stopping: the last moment for callbacks.
class stop_listener {
public:
    virtual ~stop_listener() = default;
    virtual void stopping() = 0;
};

/// All calls on the strand, unless said otherwise.
class event_loop : public environment {
public:
    /// Takes `fd` over, makes it non-blocking and closes it in the end, also on failure: null where
    /// the kernel cannot watch it.
    virtual std::unique_ptr<descriptor> adopt(int fd) = 0;

    /// Resumes `c` when the running turn (one handler of the strand) is over, so that what one turn
    /// queued leaves in one system call.
    virtual void at_turn_end(std::shared_ptr<continuation> c) = 0;
    /// Resumes `c` in a turn of its own, after those already due. Allocates nothing in a steady
    /// state, unlike post().
    virtual void next_turn(std::shared_ptr<continuation> c) = 0;
    /// Runs `f` as one turn, unless the runtime has stopped. For completion handlers that Asio
    /// calls on the strand, and for nobody else.
    virtual void take_turn(task f) = 0;

    /// Runs what other threads have posted so far, in the middle of a turn. For whoever has just
    /// received what may have been caused by that; his own state may be another afterwards.
    virtual void take_posted() = 0;

    /// `l` is told once; forget it before it dies.
    virtual void tell_stopping(stop_listener& l) = 0;
    virtual void forget(stop_listener& l) noexcept = 0;
};

}  // namespace rvget::engine
