#pragma once
// A node: stages bytes as an owner, gets them as a consumer, or both.
//
//     auto n = rvget::node::start({}).value();
//     auto r = n.get(rvget::url::parse(text).value());
//
// Every operation is async_x(args, completion_token) with void(error_code, result): callbacks,
// futures, coroutines and cancellation slots work by construction. Any thread may call. What is
// begun later (asio::deferred, use_awaitable) needs this node where it was until then. Handlers
// run on their associated executor, by default the node's. The blocking forms are for simple
// programs and must not be called on the node's executor.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>

#include <rvget/batch.hpp>
#include <rvget/config.hpp>
#include <rvget/detail/function.hpp>
#include <rvget/error.hpp>
#include <rvget/handle.hpp>
#include <rvget/region.hpp>
#include <rvget/route.hpp>
#include <rvget/transfer.hpp>

namespace boost::asio {
class io_context;
}
namespace prometheus {
class Collectable;
}

namespace rvget {

/// Memory to be filled and then staged without a copy. Move-only.
class staging {
public:
    staging();
    ~staging();
    staging(staging&&) noexcept;
    staging& operator=(staging&&) noexcept;

    /// Writable until it is staged.
    [[nodiscard]] std::span<std::byte> bytes() const noexcept;
    /// In registered memory, so that a NIC can READ it.
    [[nodiscard]] bool pinned() const noexcept;
    /// Why it is not pinned: `plain` by choice, `zero_length`, `kill_switch`, `not_configured`,
    /// `budget`, `pool_exhausted` or `registration`; and the sentence for people.
    [[nodiscard]] reason why_plain() const noexcept;
    [[nodiscard]] const std::string& why_plain_detail() const noexcept;

    struct impl;  ///< the library's side

private:
    friend class node;
    std::shared_ptr<impl> impl_;
};

/// Counts since the start. granted = released + expired + active, at every moment.
struct node_statistics {
    std::uint64_t leases_granted = 0;
    std::uint64_t leases_released = 0;
    std::uint64_t leases_expired = 0;
    std::uint64_t leases_active = 0;
    std::uint64_t slots = 0;
    std::uint64_t gets_answered = 0;
    std::uint64_t gets_failed = 0;
    /// READ again over a new queue pair because theirs went down for another's READ; each time
    /// counts.
    std::uint64_t gets_rekeyed = 0;
    std::uint64_t bytes_copied = 0;  ///< by the CPU between arrival and destination
    std::uint64_t registered_bytes = 0;
    std::uint64_t queue_pairs_made = 0;
    std::uint64_t queue_pairs_failed = 0;
    std::uint64_t spare_queue_pairs = 0;       ///< made ahead of need and not used yet
    std::uint64_t spare_queue_pairs_used = 0;  ///< of those made
};

/// Whether RDMA can run on this node, and why not.
struct rdma_status {
    bool usable = false;
    rvget::reason reason = rvget::reason::ok;
    std::string detail;
    std::string device;
    std::string fast_path;         ///< who posts READs: "verbs" (libibverbs), "mlx5" (this library)
    std::string fast_path_detail;  ///< why not as `node_options::mlx5` asked
    /// Of an owner: those in use, never `strongest`.
    lease_key_choice lease_keys = lease_key_choice::fence;
    std::string lease_keys_detail;  ///< why no stronger ones, where they were tried
};

class node {
public:
    /// On a thread of its own. Blocks while the device is opened and the first arena registered.
    /// A node without a usable device starts all the same and says why in rdma(). Fails where the
    /// options do not validate or the listen address cannot be had.
    static result<node> start(node_options options);
    /// On the embedder's io_context, which outlives the node and is run by one or more threads.
    static result<node> start(node_options options, boost::asio::io_context& context);

    node(node&&) noexcept;
    node& operator=(node&&) noexcept;
    /// As shutdown(1 s). Blocks: call shutdown() before, with the time that you have.
    ~node();

    [[nodiscard]] node_id id() const noexcept;
    /// Where it serves, with the port in use; none for a mere consumer.
    [[nodiscard]] std::optional<endpoint_address> address() const;
    [[nodiscard]] rdma_status rdma() const;
    /// Which port and GID of the device a get from `host` (a name or an address) would use now, and
    /// why not the others; without RDMA on this node `refusal` says why. What packets make of it
    /// `rvget check` finds out. Any thread; blocks for the resolver. Fails where `host` does not
    /// resolve or the kernel has no route there.
    [[nodiscard]] result<route_explanation> explain(const std::string& host) const;
    [[nodiscard]] boost::asio::any_io_executor get_executor() const;

    // ---- Owner. Any thread; staging blocks while it copies or registers.

    /// Memory of `bytes` bytes to fill. With `pinned`, from the registered pool (growing it may
    /// take milliseconds); never fails for want of it: plain memory takes its place and says why.
    [[nodiscard]] result<staging> make_staging(std::size_t bytes, bool pinned = true);
    /// Stages what was filled; takes it. The slot has one reference, the owner's.
    [[nodiscard]] result<handle> stage(staging filled);
    /// Copies `bytes` into plain memory and stages them.
    [[nodiscard]] result<handle> stage(std::span<const std::byte> bytes);
    /// Copies `bytes` into the registered pool, or into plain memory where that cannot be had.
    [[nodiscard]] result<handle> stage_pinned(std::span<const std::byte> bytes);
    /// Stages `length` bytes of a region at `offset` where they are, without a copy; they must not
    /// change while they are staged. Fails with `invalid_argument` where they do not lie in a
    /// registered region of this node, `buffer_busy` where a get still fills part of them, and
    /// where the device takes no registration that they need. Zero bytes are plain. Unregistering
    /// the region takes the slot away.
    [[nodiscard]] result<handle> stage_region(const region& in, std::size_t offset,
                                              std::size_t length);
    /// The handle with this node's own address: as it listens, so for all addresses of a machine
    /// put one in that its peers know. Precondition: it listens (std::logic_error).
    [[nodiscard]] url url_of(const handle& h) const;

    /// What is known of a slot of this node, after all that was staged or released before.
    [[nodiscard]] result<slot_metadata> metadata(const handle& own);
    /// One more reference for one more holder; returns how many there are.
    result<std::uint32_t> add_reference(const handle& own);
    /// Drops a reference of this node's own and returns how many are left, those of consumers
    /// included; at none, and without active leases, the slot is freed. `not_found` where this node
    /// holds none any more.
    result<std::uint32_t> release(const handle& own);

    // ---- Consumer.

    /// Owned bytes, with at most one copy.
    template <class Token>
    auto async_get(const url& from, const get_options& options, Token&& token) {
        return initiate<get_result>(
            [this, from, options](operation o, auto done) {
                begin_get(o, from, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// A registered buffer, with no copy.
    template <class Token>
    auto async_get_pinned(const url& from, const get_options& options, Token&& token) {
        return initiate<get_pinned_result>(
            [this, from, options](operation o, auto done) {
                begin_get_pinned(o, from, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// Into the caller's memory, at least as large as the range. In a registered region the NIC
    /// writes it directly. After a cancel or deadline await the result's `quiet` before other use.
    template <class Token>
    auto async_get_into(const url& from, std::span<std::byte> destination,
                        const get_options& options, Token&& token) {
        return initiate<get_into_result>(
            [this, from, destination, options](operation o, auto done) {
                begin_get_into(o, from, destination, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// Each of `items` as by async_get, with an answer of its own, in their order. Their acquires
    /// follow each other without waiting for replies, a bounded number of gets at a time. One
    /// deadline over all; a cancel is one of all that has not ended. The error code is never set:
    /// each element has its own.
    template <class Token>
    auto async_get_batch(std::vector<get_item> items, const batch_options& options, Token&& token) {
        return initiate<std::vector<batch_element<get_result>>>(
            [this, items = std::move(items), options](operation o, auto done) mutable {
                begin_get_batch(o, items, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// As async_get_batch, by async_get_pinned.
    template <class Token>
    auto async_get_pinned_batch(std::vector<get_item> items, const batch_options& options,
                                Token&& token) {
        return initiate<std::vector<batch_element<get_pinned_result>>>(
            [this, items = std::move(items), options](operation o, auto done) mutable {
                begin_get_pinned_batch(o, items, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// As async_get_batch, by async_get_into: destinations that overlap are `buffer_busy`.
    template <class Token>
    auto async_get_into_batch(std::vector<get_into_item> items, const batch_options& options,
                              Token&& token) {
        return initiate<std::vector<batch_element<get_into_result>>>(
            [this, items = std::move(items), options](operation o, auto done) mutable {
                begin_get_into_batch(o, items, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// What an owner says of a slot of its own.
    template <class Token>
    auto async_metadata(const url& of, const call_options& options, Token&& token) {
        return initiate<slot_metadata>(
            [this, of, options](operation o, auto done) {
                begin_metadata(o, of, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    template <class Token>
    auto async_metadata(const url& of, Token&& token) {
        return async_metadata(of, call_options{}, std::forward<Token>(token));
    }
    /// One more reference for this node to a slot of another owner; tells how many there are. It
    /// holds the slot until it is released, or the connection to the owner ends.
    template <class Token>
    auto async_add_reference(const url& of, const call_options& options, Token&& token) {
        return initiate<std::uint32_t>(
            [this, of, options](operation o, auto done) {
                begin_add_reference(o, of, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// Drops a reference that this node added; `not_found` where it holds none.
    template <class Token>
    auto async_release(const url& of, const call_options& options, Token&& token) {
        return initiate<std::uint32_t>(
            [this, of, options](operation o, auto done) {
                begin_release(o, of, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// Connects ahead of the first get; tells which owner is there.
    template <class Token>
    auto async_connect(const endpoint_address& to, const call_options& options, Token&& token) {
        return initiate<node_id>(
            [this, to, options](operation o, auto done) {
                begin_connect(o, to, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    template <class Token>
    auto async_connect(const endpoint_address& to, Token&& token) {
        return async_connect(to, call_options{}, std::forward<Token>(token));
    }

    /// Brings up all that a first get would wait for, ahead of it: the control connection to an
    /// owner and both ends of a queue pair. Gets meanwhile share in it, and so do other calls of
    /// this. No error where RDMA cannot run: the result says why. The errors are those of
    /// async_connect.
    template <class Token>
    auto async_warm(const endpoint_address& to, const call_options& options, Token&& token) {
        return initiate<warm_result>(
            [this, to, options](operation o, auto done) {
                begin_warm(o, to, {}, options, std::move(done));
            },
            std::forward<Token>(token));
    }
    /// The same towards the owner of a slot; another one there is `wrong_owner`.
    template <class Token>
    auto async_warm(const url& of, const call_options& options, Token&& token) {
        return initiate<warm_result>(
            [this, of, options](operation o, auto done) {
                begin_warm(o, of.address, of.handle.owner, options, std::move(done));
            },
            std::forward<Token>(token));
    }

    [[nodiscard]] result<get_result> get(const url& from, const get_options& options = {});
    [[nodiscard]] result<get_pinned_result> get_pinned(const url& from,
                                                       const get_options& options = {});
    /// `still_written`, where given, takes the `quiet` also of a failure (a deadline, say): await
    /// it before other use of a destination that lies in a region.
    [[nodiscard]] result<get_into_result> get_into(const url& from,
                                                   std::span<std::byte> destination,
                                                   const get_options& options = {},
                                                   quiet* still_written = nullptr);
    [[nodiscard]] std::vector<batch_element<get_result>> get_batch(
        const std::vector<get_item>& items, const batch_options& options = {});
    [[nodiscard]] std::vector<batch_element<get_pinned_result>> get_pinned_batch(
        const std::vector<get_item>& items, const batch_options& options = {});
    [[nodiscard]] std::vector<batch_element<get_into_result>> get_into_batch(
        const std::vector<get_into_item>& items, const batch_options& options = {});
    [[nodiscard]] result<slot_metadata> metadata(const url& of, const call_options& options = {});
    result<std::uint32_t> add_reference(const url& of, const call_options& options = {});
    result<std::uint32_t> release(const url& of, const call_options& options = {});
    [[nodiscard]] result<node_id> connect(const endpoint_address& to,
                                          const call_options& options = {});
    result<warm_result> warm(const endpoint_address& to, const call_options& options = {});
    result<warm_result> warm(const url& of, const call_options& options = {});

    // ---- Both.

    /// Registers memory, which the caller keeps until it is unregistered, for stage_region and as a
    /// destination for get_into. Blocks while it is pinned: milliseconds per 100 MiB. Fails with
    /// `device_errc::none` without a device, and `registration` (see `ulimit -l`).
    [[nodiscard]] result<region> register_region(std::span<std::byte> memory);
    /// The same with memory that the region then owns. Where it fails `memory` is left as it was;
    /// after unregister() the buffer is taken back from what that returned, or else freed.
    [[nodiscard]] result<region> register_owned(buffer&& memory);
    /// The same with `length` bytes at `offset` (a multiple of the page size) of a dma-buf, a
    /// device's memory say, mapped for this process too; the descriptor may be closed afterwards.
    /// Fails with `not_supported` where the device cannot (Soft-RoCE cannot), or where the
    /// dma-buf's exporter does not map it.
    [[nodiscard]] result<region> register_dmabuf(int descriptor, std::uint64_t offset,
                                                 std::size_t length);

    [[nodiscard]] node_statistics statistics() const;

    /// What statistics() has and more, in Prometheus' text format (version 0.0.4): path decisions,
    /// durations, leases, memory, connections, errors. No label names a peer, and there are only as
    /// many as there are paths, reasons, states and statuses. Any thread but the node's executor:
    /// it blocks for as long as the node takes to answer.
    [[nodiscard]] std::string metrics() const;
    /// The same for a registry or exposer of prometheus-cpp (libprometheus-cpp-core); it may
    /// outlive the node, and then collects nothing.
    [[nodiscard]] std::shared_ptr<prometheus::Collectable> metrics_source() const;

    /// Gate, let leases end, revoke and drain the rest, close; all within `deadline`. False where a
    /// queue pair could not be proven quiet in time: its memory is leaked and logged, never freed.
    /// Blocks; not on the node's executor. Every operation is answered, with `stopped` where it did
    /// not end before; so is every later call. Later calls of this return the first one's answer.
    bool shutdown(std::chrono::milliseconds deadline);

    struct impl;  ///< the library's side

private:
    template <class R>
    using callback = detail::unique_function<void(error_code, R)>;
    using operation = std::uint64_t;

    explicit node(std::shared_ptr<impl> i) noexcept;

    operation next_operation() noexcept;
    void begin_get(operation, const url&, const get_options&, callback<get_result>);
    void begin_get_pinned(operation, const url&, const get_options&, callback<get_pinned_result>);
    void begin_get_into(operation, const url&, std::span<std::byte>, const get_options&,
                        callback<get_into_result>);
    template <class R>
    using batch_callback = callback<std::vector<batch_element<R>>>;
    void begin_get_batch(operation, const std::vector<get_item>&, const batch_options&,
                         batch_callback<get_result>);
    void begin_get_pinned_batch(operation, const std::vector<get_item>&, const batch_options&,
                                batch_callback<get_pinned_result>);
    void begin_get_into_batch(operation, const std::vector<get_into_item>&, const batch_options&,
                              batch_callback<get_into_result>);
    void begin_metadata(operation, const url&, const call_options&, callback<slot_metadata>);
    void begin_add_reference(operation, const url&, const call_options&, callback<std::uint32_t>);
    void begin_release(operation, const url&, const call_options&, callback<std::uint32_t>);
    void begin_connect(operation, const endpoint_address&, const call_options&, callback<node_id>);
    void begin_warm(operation, const endpoint_address&, std::optional<node_id>, const call_options&,
                    callback<warm_result>);
    static void cancel(const std::weak_ptr<impl>& i, operation o);

    /// Ties a begin function to a completion token: handler on its executor, work kept there until
    /// it ran, its cancellation slot connected to cancel().
    template <class R, class Begin, class Token>
    auto initiate(Begin begin, Token&& token) {
        return boost::asio::async_initiate<Token, void(error_code, R)>(
            [this](auto handler, Begin b) {
                namespace asio = boost::asio;
                auto slot = asio::get_associated_cancellation_slot(handler);
                auto executor = asio::prefer(asio::get_associated_executor(handler, get_executor()),
                                             asio::execution::outstanding_work.tracked);
                // Connected before the operation begins: its handler may run, and take the slot
                // with it, before this function returns.
                const auto o = next_operation();
                if (slot.is_connected())
                    slot.assign(
                        [weak = std::weak_ptr<impl>(impl_), o](asio::cancellation_type type) {
                            if (type != asio::cancellation_type::none) cancel(weak, o);
                        });
                b(o,
                  callback<R>([handler = std::move(handler), executor](error_code ec, R r) mutable {
                      asio::post(executor,
                                 [handler = std::move(handler), ec, r = std::move(r)]() mutable {
                                     asio::get_associated_cancellation_slot(handler).clear();
                                     std::move(handler)(ec, std::move(r));
                                 });
                  }));
            },
            token, std::move(begin));
    }

    std::shared_ptr<impl> impl_;
};

}  // namespace rvget
