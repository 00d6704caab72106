#include "engine/transfer.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/crc32c.hpp"
#include "engine/plain_memory.hpp"
#include "engine/planted.hpp"

namespace rvget::engine {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr std::uint64_t copy_step = std::uint64_t{1} << 20;
/// Times that one get begins anew because its lane went down for another's READ.
constexpr unsigned most_rekeys = 2;

transfer::transfer(services& s, region_table& regions, transfer_request request, answered done)
    : s_(s), regions_(regions), request_(request), done_(std::move(done)) {}

transfer::~transfer() = default;

void transfer::start() {
    self_ = shared_from_this();
    began_ = phase_began_ = s_.env.now();
    ++s_.stats.gets_started;
    if (request_.kind == destination_kind::into) {
        if (!regions_.take(request_.into))
            return fail({request_errc::buffer_busy,
                         "part of the destination is still being filled by another get; await its "
                         "answer, or its quiet after a cancel or deadline"});
        taken_ = true;
    }
    deadline_timer_ = s_.env.at(request_.deadline, [self = shared_from_this()] {
        self->deadline_timer_ = 0;
        self->abandon({request_errc::deadline_exceeded,
                       "the get did not end inside its deadline; the path so far: " +
                           std::string(to_string(self->report_.path))});
    });
}

void transfer::connected(const failure& f, std::shared_ptr<consumer_connection> connection) {
    if (answered_) return;
    if (f.code) return fail(f);
    connection_ = std::move(connection);
    acquire();
}

// ---- acquire

void transfer::acquire() {
    if (answered_) return;
    wire::acquire m;
    auto why = reason::ok;
    std::string detail;
    if (fallback_) {
        why = no_offer_;
        detail = fallback_->message();
    } else if (request_.policy == path_policy::never) {
        why = reason::policy;
    } else {
        auto lane = connection_->lane_for_get(insist_ || request_.policy == path_policy::require,
                                              [self = shared_from_this()] { self->acquire(); });
        if (lane.wait) return;
        why = lane.why;
        detail = std::move(lane.detail);
        lane_ = std::move(lane.lane);
    }
    if (lane_) {
        m.offer = lane_->offer();
    } else if (request_.policy == path_policy::require) {
        return fail({request_errc::path_not_available,
                     "policy is require and RDMA cannot run here: " + std::string(to_string(why)) +
                         (detail.empty() ? "" : " (" + detail + ")") +
                         "; allow chunks with policy prefer, or mend that"});
    }
    no_offer_ = why;
    report_.reason = why;
    report_.detail = detail;
    const auto now = s_.env.now();
    m.slot = request_.slot;
    m.offset = request_.offset;
    m.length = request_.length;
    m.deadline_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(
        duration_cast<milliseconds>(request_.deadline - now).count() + 1, 1, 0xffffffff));
    m.force = insist_ || request_.policy == path_policy::require;
    m.no_offer_reason = why;
    m.detaches = connection_->take_ended_leases();
    if (request_.checksum) m.checksum = wire::checksum::crc32c;
    const bool offered = m.offer.has_value();
    if (fallback_) ++s_.stats.acquires_without_offer_after_rdma;
    connection_->request(
        std::move(m), [self = shared_from_this(), now, offered](
                          const failure& f, wire::body* body, std::span<const std::byte> payload) {
            self->acquired(f, body, payload, now, offered);
        });
}

void transfer::acquired(const failure& f, wire::body* body, std::span<const std::byte> payload,
                        time_point sent, bool offered) {
    if (f.code) return fail(f);
    auto* reply = std::get_if<wire::acquire_reply>(body);
    if (reply == nullptr)
        return fail(
            {connection_errc::protocol, "an acquire was answered by another kind of frame"});
    connection_->learn_owner_end(reply->lane_generation, reply->lane_facts);
    if (answered_) {  // nobody waits any more; the lease goes back unused
        lease_ = reply->lease;
        return succeed();
    }
    s_.stats.acquires.record(s_.env.now() - phase_began_);
    report_.acquire += s_.env.now() - phase_began_;
    phase_began_ = s_.env.now();
    report_.slot_bytes = reply->slot_bytes;
    if (request_.checksum) owners_checksum_ = reply->crc32c;
    report_.bytes = range_bytes_ = reply->range_bytes;
    if (offered) {
        // `ok` says that a READ ran, whatever an owner says.
        if (reply->why == reason::ok && reply->answer != wire::answer::rdma &&
            (reply->answer == wire::answer::chunked ||
             reply->answer == wire::answer::inline_answer))
            return fail(
                {connection_errc::protocol, "the owner gave no reason for another path than RDMA"});
        report_.reason = reply->why;
        report_.detail = reply->detail;
    }
    if (range_bytes_ > request_.length)
        return fail({connection_errc::protocol,
                     "the owner answered with a longer range than was "
                     "asked for"});
    if (request_.kind == destination_kind::into && range_bytes_ > request_.into.size()) {
        lease_ = reply->lease;
        return fail(
            {request_errc::invalid_argument, "the range has " + std::to_string(range_bytes_) +
                                                 " bytes and the destination has room for " +
                                                 std::to_string(request_.into.size())});
    }
    const bool leased =
        reply->answer == wire::answer::rdma || reply->answer == wire::answer::chunked;
    if (leased && (reply->lease == 0 || reply->duration_ms == 0 || range_bytes_ == 0))
        return fail({connection_errc::protocol, "a lease without id, duration or bytes"});
    if (offered && reply->why == reason::no_lane && lane_->down_for_another() &&
        rekeys_ < most_rekeys) {
        // The lane went down while the answer was on its way; there may be another by now.
        ++rekeys_;
        lease_ = reply->lease;
        end_lease();
        return acquire();
    }
    switch (reply->answer) {
        case wire::answer::rdma:
            if (!offered)
                return fail({connection_errc::protocol,
                             "the owner answered RDMA to a request without an offer"});
            return begin_read(*reply, sent);
        case wire::answer::chunked:
            return begin_pull(*reply, sent);
        case wire::answer::inline_answer:
            return take_inline(*reply, payload);
        case wire::answer::busy:
            return answered_busy(*reply);
        default:
            if (std::exchange(insist_, false)) return fall_back(reason::get_failed, *mismatch_);
            return fail(refusal(*reply));
    }
}

failure transfer::refusal(const wire::acquire_reply& reply) const {
    const auto why =
        std::string(to_string(reply.why)) + (reply.detail.empty() ? "" : " (" + reply.detail + ")");
    switch (reply.answer) {
        case wire::answer::not_found:
            return {request_errc::not_found,
                    "the owner has no such slot: it was never staged or has been released"};
        case wire::answer::out_of_range:
            return {request_errc::out_of_range, "offset " + std::to_string(request_.offset) +
                                                    " is past the end of the slot (" +
                                                    std::to_string(reply.slot_bytes) + " bytes)"};
        case wire::answer::not_pinned:
            return {request_errc::not_pinned,
                    "policy is require and the owner holds the slot in "
                    "plain memory: " +
                        why};
        default:
            if (reply.why == reason::draining)
                return {request_errc::refused, "the owner is shutting down; get from another one"};
            return {request_errc::path_not_available,
                    "policy is require and the owner cannot serve RDMA: " + why};
    }
}

void transfer::answered_busy(const wire::acquire_reply& reply) {
    const auto again =
        s_.env.now() + milliseconds(std::max<std::uint32_t>(1, reply.retry_after_ms));
    if (again >= request_.deadline)
        return fail({request_errc::busy, "the owner is out of budget; try again in " +
                                             std::to_string(reply.retry_after_ms) + " ms"});
    busy_timer_ = s_.env.at(again, [self = shared_from_this()] {
        self->busy_timer_ = 0;
        self->phase_began_ = self->s_.env.now();
        self->acquire();
    });
}

void transfer::take_inline(const wire::acquire_reply& reply, std::span<const std::byte> payload) {
    report_.path = path::inline_answer;
    if (payload.size() != reply.range_bytes)
        return fail({connection_errc::protocol, "an inline answer of another length than it says"});
    if (!prepare_plain(payload.size())) return;
    if (!payload.empty()) std::memcpy(target_.data(), payload.data(), payload.size());
    report_.copied_bytes += payload.size();
    s_.stats.bytes_copied += payload.size();
    arrived();
}

// ---- the lease

void transfer::hold_lease(std::uint64_t lease, time_point sent, milliseconds granted) {
    lease_ = lease;
    // Counted from sending the request, so that no estimate of the round trip is needed.
    lease_end_ = sent + granted;
    grant_ = granted;
    s_.env.cancel(lease_timer_);
    lease_timer_ = s_.env.at(sent + granted / 2, [self = shared_from_this()] {
        self->lease_timer_ = 0;
        self->renew();
    });
}

void transfer::renew() {
    if (answered_ || lease_ == 0) return;
    lease_timer_ = s_.env.at(lease_end_, [self = shared_from_this()] {
        self->lease_timer_ = 0;
        self->lease_ran_out();
    });
    const auto now = s_.env.now();
    connection_->request(wire::renew{lease_},
                         [self = shared_from_this(), now](const failure& f, wire::body* body,
                                                          std::span<const std::byte>) {
                             self->renewed(f, body, now);
                         });
}

void transfer::renewed(const failure& f, wire::body* body, time_point sent) {
    if (f.code || answered_ || lease_ == 0) return;
    const auto* reply = std::get_if<wire::renew_reply>(body);
    if (reply == nullptr || !reply->granted || reply->duration_ms == 0)
        return;  // the lease still runs to its end
    hold_lease(lease_, sent, milliseconds(reply->duration_ms));
    if (job_) lane_->extend(*job_, lease_end_);
}

void transfer::lease_ran_out() {
    if (answered_) return;
    lease_lost_ = true;
    if (rekeying_) return give_up_rekeying();
    if (job_) lane_->stop(job_);
    // The chunked path hears it from the owner, which knows best whether it still serves.
}

void transfer::end_lease() {
    s_.env.cancel(std::exchange(lease_timer_, 0));
    if (lease_ != 0) connection_->end_lease(std::exchange(lease_, 0));
}

// ---- RDMA

void transfer::begin_read(const wire::acquire_reply& reply, time_point sent) {
    report_.path = path::rdma;
    hold_lease(reply.lease, sent, milliseconds(reply.duration_ms));
    if (!take_descriptor(reply.descriptor)) return;
    if (grant_ <= s_.rdma.retry_window()) {
        // No READ would ever be posted, however often the lease is renewed.
        const auto ms = [](duration t) {
            return std::to_string(duration_cast<milliseconds>(t).count()) + " ms";
        };
        return fall_back(reason::lease_lost,
                         {lease_errc::lost, "the owner grants leases of " + ms(grant_) +
                                                ", no longer than the retry window here (" +
                                                ms(s_.rdma.retry_window()) +
                                                "): lower retry_window here or raise "
                                                "lease_timeout there"});
    }
    if (prepare_read()) submit_read();
}

bool transfer::take_descriptor(const std::optional<std::vector<std::byte>>& encoded) {
    auto d = encoded
                 ? wire::decode_descriptor(*encoded)
                 : result<wire::descriptor>(failure{connection_errc::protocol, "no descriptor"});
    if (d && (d->length != range_bytes_ || d->lease != lease_))
        d = failure{connection_errc::protocol, "the descriptor is for another range or lease"};
    if (d && (d->generation != lane_->generation() || !lane_->owner_known()))
        d = failure{connection_errc::protocol, "the descriptor is for another queue pair"};
    if (d)
        descriptor_ = std::move(d.value());
    else
        fall_back(reason::decode_error, d.error());
    return d.has_value();
}

bool transfer::prepare_read() {
    if (request_.kind == destination_kind::into) {
        region_ = regions_.find(request_.into.first(range_bytes_));
        if (region_) return true;
    }
    const bool stays = request_.kind == destination_kind::pinned;
    auto block =
        s_.rdma.memory().allocate(range_bytes_, stays ? block_use::hold : block_use::bounce);
    if (block) {
        block_ = std::move(*block);
        return true;
    }
    if (block.error().why != reason::pool_exhausted) {
        pool_refused(block.error());
        return false;
    }
    // Registering one more arena takes milliseconds: not on the strand. Other gets may take the
    // room first; then it grows again, until the budget says no.
    auto grown = std::make_shared<boost::system::result<void, pool::refusal>>();
    s_.env.offload(
        blocking_work::make,
        [grown, bytes = range_bytes_, &memory = s_.rdma.memory()] {
            *grown = memory.grow_for(bytes);
        },
        [self = shared_from_this(), grown] {
            if (self->answered_) return;
            if (!*grown) return self->pool_refused(grown->error());
            if (self->lease_lost_)
                return self->fall_back(
                    reason::lease_lost,
                    {lease_errc::lost, "the lease ended while memory was registered"});
            if (self->prepare_read()) self->submit_read();
        });
    return false;
}

/// For a consumer a budget that is used up is a pool that is exhausted.
void transfer::pool_refused(const pool::refusal& r) {
    fall_back(r.why == reason::budget ? reason::pool_exhausted : r.why,
              {device_errc::registration, r.detail});
}

void transfer::submit_read() {
    job_ = std::make_shared<read_job>();
    job_->local = region_ ? request_.into.data() : block_.bytes().data();
    job_->local_key = region_ ? region_->local_key() : block_.local_key();
    job_->remote_address = descriptor_->address;
    job_->remote_key = descriptor_->keys.front().remote_key;
    job_->bytes = range_bytes_;
    job_->lease_end = lease_end_;
    job_->finished = [self = shared_from_this()](read_job::outcome o, const failure& f) {
        self->read_ended(o, f);
    };
    const auto& port = lane_->port();
    report_.device = port.device;
    report_.port = port.identity.port;
    report_.gid = port.gid;
    report_.path_mtu = lane_->path_mtu();
    connection_->read_begins();
    lane_->submit(job_);
    if (planted(bug::lease_ended_early)) end_lease();
}

/// The NIC is done with the destination, one way or the other; only now does the lease end.
void transfer::read_ended(read_job::outcome o, const failure& f) {
    job_.reset();
    const bool again = o == read_job::outcome::bystander && !answered_ && !lease_lost_ &&
                       rekeys_ < most_rekeys && !connection_->closing();
    if (!again) end_lease();
    connection_->read_over();
    if (o == read_job::outcome::done) connection_->lane_worked();
    if (answered_) return succeed();
    if (o == read_job::outcome::done) {
        report_.transfer += s_.env.now() - phase_began_;
        phase_began_ = s_.env.now();
        return copy_out();
    }
    if (lease_lost_ || o == read_job::outcome::stopped)
        return fall_back(reason::lease_lost,
                         {lease_errc::lost, "the lease ended before all bytes had arrived"});
    const auto why = f.code.category() == lease_category()    ? reason::lease_lost
                     : f.code.category() == device_category() ? reason::no_route
                                                              : reason::get_failed;
    if (!again) return fall_back(why, f);
    ++rekeys_;
    rekeying_ = {why, f};
    rekey();
}

/// The lease lives on and the destination stays where it is: only the way there is new.
void transfer::rekey() {
    if (answered_ || !rekeying_) return;
    auto lane = connection_->lane_for_get(true, [self = shared_from_this()] { self->rekey(); });
    if (lane.wait) return;
    if (!lane.lane) return give_up_rekeying();
    lane_ = std::move(lane.lane);
    connection_->request(wire::renew{lease_, lane_->offer()},
                         [self = shared_from_this(), now = s_.env.now()](
                             const failure& f, wire::body* body, std::span<const std::byte>) {
                             self->rekeyed(f, body, now);
                         });
}

void transfer::rekeyed(const failure& f, wire::body* body, time_point sent) {
    const auto* reply = f.code ? nullptr : std::get_if<wire::renew_reply>(body);
    if (reply != nullptr) connection_->learn_owner_end(reply->lane_generation, reply->lane_facts);
    if (answered_ || !rekeying_) return;
    if (reply == nullptr || !reply->granted || reply->duration_ms == 0 || !reply->descriptor ||
        !lane_->offerable())
        return give_up_rekeying();
    rekeying_.reset();
    hold_lease(lease_, sent, milliseconds(reply->duration_ms));
    if (!planted(bug::old_key_read_again) && !take_descriptor(reply->descriptor)) return;
    ++s_.stats.gets_rekeyed;
    submit_read();
}

void transfer::give_up_rekeying() {
    const auto before = *std::exchange(rekeying_, std::nullopt);
    fall_back(before.why, before.error);
}

/// A get into plain memory, or one that returns it, takes its bytes out of the registered block.
void transfer::copy_out() {
    if (region_ || request_.kind == destination_kind::pinned) {
        target_ = region_ ? request_.into : block_.bytes();
        return arrived();
    }
    if (prepare_plain(range_bytes_)) copy_more(0);
}

/// In steps, so that a large copy holds up nobody else's get, and none goes on after an answer:
/// plain memory is the caller's again at that moment.
void transfer::copy_more(std::uint64_t copied) {
    if (answered_) return;
    const auto bytes = std::min<std::uint64_t>(copy_step, range_bytes_ - copied);
    std::memcpy(target_.data() + copied, block_.bytes().data() + copied, bytes);
    copied += bytes;
    report_.copied_bytes += bytes;
    s_.stats.bytes_copied += bytes;
    s_.env.time_passed();
    if (copied < range_bytes_)
        return s_.env.post([self = shared_from_this(), copied] { self->copy_more(copied); });
    report_.copy = s_.env.now() - phase_began_;
    arrived();
}

// ---- the checksum

/// All bytes are where they shall be.
void transfer::arrived() {
    if (!owners_checksum_) return succeed();
    check_more(0, 0);
}

/// In steps, as copy_more() and for the same reasons.
void transfer::check_more(std::uint64_t checked, std::uint32_t so_far) {
    if (answered_) return;
    const auto bytes = std::min<std::uint64_t>(copy_step, range_bytes_ - checked);
    so_far = crc32c(target_.subspan(checked, bytes), so_far);
    s_.env.time_passed();
    checked += bytes;
    if (checked < range_bytes_)
        return s_.env.post(
            [self = shared_from_this(), checked, so_far] { self->check_more(checked, so_far); });
    if (so_far != *owners_checksum_) return mismatched(so_far);
    report_.crc32c = so_far;
    succeed();
}

void transfer::mismatched(std::uint32_t here) {
    ++s_.stats.checksum_mismatches;
    const auto hex = [](std::uint32_t v) {
        std::array<char, 11> text{};
        std::snprintf(text.data(), text.size(), "0x%08x", v);
        return std::string(text.data());
    };
    const failure f{request_errc::checksum,
                    "the owner's CRC-32C of the range is " + hex(*owners_checksum_) +
                        ", that of the bytes that came (" + std::string(to_string(report_.path)) +
                        ") is " + hex(here) + "; test the memory and the NICs of both machines"};
    if (std::exchange(mismatch_, f)) return fail(f);
    end_lease();
    plain_ = {};
    asked_ = arrived_ = 0;
    if (report_.path == path::rdma || !lane_ || !lane_->offerable())
        return fall_back(reason::get_failed, f);
    insist_ = true;
    block_ = {};
    phase_began_ = s_.env.now();
    acquire();
}

void transfer::fall_back(reason why, const failure& f) {
    end_lease();
    block_ = {};
    region_.reset();
    lane_.reset();
    if (request_.policy == path_policy::require)
        return fail({f.code, "policy is require and RDMA failed (" + std::string(to_string(why)) +
                                 "): " + f.message()});
    fallback_ = f;
    no_offer_ = why;
    phase_began_ = s_.env.now();
    acquire();
}

// ---- chunks

bool transfer::prepare_plain(std::uint64_t bytes) {
    if (request_.kind == destination_kind::into) {
        target_ = request_.into.first(bytes);
        return true;
    }
    if (request_.kind == destination_kind::pinned && s_.rdma.usable() && bytes > 0) {
        if (auto block = s_.rdma.memory().allocate(bytes)) {
            block_ = std::move(*block);
            target_ = block_.bytes();
            return true;
        }
    }
    plain_ = allocate_plain(bytes);
    target_ = plain_.bytes();
    if (plain_.data() != nullptr) return true;
    fail({node_errc::out_of_memory, std::to_string(bytes) + " bytes of plain memory"});
    return false;
}

void transfer::begin_pull(const wire::acquire_reply& reply, time_point sent) {
    report_.path = path::chunked;
    hold_lease(reply.lease, sent, milliseconds(reply.duration_ms));
    if (prepare_plain(range_bytes_)) pull_more();
}

void transfer::pull_more() {
    while (asked_ < range_bytes_ && in_flight_.size() < s_.options.chunks_in_flight) {
        const auto bytes = std::min<std::uint64_t>(s_.options.chunk_bytes, range_bytes_ - asked_);
        const auto offset = asked_;
        asked_ += bytes;
        // The id is known only after the request is made, and the reply comes later than that.
        auto id = std::make_shared<std::uint64_t>(0);
        *id = connection_->request(
            wire::pull{lease_, offset, static_cast<std::uint32_t>(bytes)},
            [self = shared_from_this(), id, bytes](const failure& f, wire::body* body,
                                                   std::span<const std::byte>) {
                self->pulled(*id, bytes, f, body);
            },
            target_.subspan(offset, bytes));
        in_flight_.push_back({*id, bytes});
    }
}

void transfer::pulled(std::uint64_t request, std::uint64_t bytes, const failure& f,
                      wire::body* body) {
    std::erase_if(in_flight_, [&](const chunk_in_flight& c) { return c.request == request; });
    if (answered_) return;
    if (f.code) return fail(f);
    const auto* c = std::get_if<wire::chunk>(body);
    if (c == nullptr)
        return fail({connection_errc::protocol, "a pull was answered by another kind of frame"});
    if (c->status != wire::chunk_status::ok)
        return fail({lease_errc::lost, "the owner ended the lease before all chunks were pulled"});
    arrived_ += bytes;
    if (arrived_ < range_bytes_) return pull_more();
    report_.transfer += s_.env.now() - phase_began_;
    arrived();
}

// ---- the end

/// Everything that could still touch the destination is done.
void transfer::succeed() {
    end_lease();
    answer({});
    release_destination();
    self_.reset();
}

void transfer::fail(const failure& f) {
    answer(f);
    end_lease();
    for (const auto& c : in_flight_)
        if (!planted(bug::destination_not_forgotten)) connection_->forget_destination(c.request);
    if (!planted(bug::destination_not_forgotten)) {
        // A silent owner may keep a request, and so this object, for long: the memory goes now.
        block_ = {};
        plain_ = {};
        target_ = {};
    }
    release_destination();
    self_.reset();
}

void transfer::abandon(const failure& f) {
    if (answered_ || !self_) return;
    if (job_) {
        // The NIC may still write: the caller hears at once, the destination stays parked.
        const bool direct = region_ != nullptr;
        if (direct && !planted(bug::quiet_at_once)) quiet_ = std::make_shared<quiet::state>();
        if (!planted(bug::cancel_waits)) answer(f);
        if (!direct || planted(bug::quiet_before_drain)) release_destination();
        if (planted(bug::block_freed_on_abandon)) block_ = {};
        lane_->stop(job_);
        return;
    }
    fail(f);
}

void transfer::answer(const failure& f) {
    if (std::exchange(answered_, true) && !(planted(bug::double_answer) && done_)) return;
    stop_timers();
    ++s_.stats.gets_answered;
    transfer_answer a;
    a.error = f;
    a.report = report_;
    if (quiet_) a.quiet = rvget::quiet(quiet_);
    if (f.code) {
        ++s_.stats.gets_failed;
        a.report.detail = f.detail;
    } else {
        s_.stats.got(report_.path, report_.reason);
        s_.stats.gets.record(s_.env.now() - began_);
        a.bytes = range_bytes_;
        if (request_.kind == destination_kind::pinned && block_) {
            auto held = std::make_shared<pinned_block>(std::move(block_));
            const auto bytes = held->bytes().first(range_bytes_);
            a.data = pinned_buffer(std::move(held), bytes, true);
        } else if (request_.kind != destination_kind::into) {
            const auto bytes = plain_.bytes();
            a.data = pinned_buffer(std::make_shared<buffer>(std::move(plain_)), bytes, false);
        } else {
            // The caller may use it for the next get before this function returns.
            release_destination();
        }
    }
    if (planted(bug::double_answer)) return done_(std::move(a));
    auto done = std::exchange(done_, nullptr);
    done(std::move(a));
}

void transfer::release_destination() {
    if (std::exchange(taken_, false)) regions_.give_back(request_.into);
    region_.reset();
    if (quiet_) std::exchange(quiet_, nullptr)->resolve();
}

void transfer::stop_timers() {
    s_.env.cancel(std::exchange(deadline_timer_, 0));
    s_.env.cancel(std::exchange(busy_timer_, 0));
    s_.env.cancel(std::exchange(lease_timer_, 0));
}

}  // namespace rvget::engine
