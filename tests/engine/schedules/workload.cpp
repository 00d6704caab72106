#include "engine/schedules/workload.hpp"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <utility>

#include "engine/plain_memory.hpp"

namespace rvget::test {

using namespace std::chrono_literals;
using engine::destination_kind;

namespace {

bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
    const std::less<> before;
    return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
           before(b.data(), a.data() + a.size());
}

bool within(std::span<const std::byte> inner, std::span<const std::byte> outer) {
    const std::less_equal<> not_after;
    return not_after(outer.data(), inner.data()) &&
           not_after(inner.data() + inner.size(), outer.data() + outer.size());
}

std::string host(std::size_t node) { return "n" + std::to_string(node); }

}  // namespace

std::string describe(const operation& o) {
    constexpr const char* names[] = {"stage",
                                     "release",
                                     "get",
                                     "batch",
                                     "cancel",
                                     "connect",
                                     "metadata",
                                     "reference",
                                     "unregister",
                                     "take back",
                                     "cut",
                                     "pause",
                                     "resume",
                                     "drop",
                                     "undrop",
                                     "link down",
                                     "link up",
                                     "fail wiring",
                                     "false success",
                                     "refuse read",
                                     "lose gid",
                                     "regain gid",
                                     "refuse connects",
                                     "accept connects",
                                     "shut down"};
    constexpr const char* kinds[] = {"owned", "pinned", "into"};
    std::string text = names[static_cast<std::size_t>(o.kind)];
    text += " n" + std::to_string(o.node);
    switch (o.kind) {
        case operation_kind::stage:
            return text + " slot " + std::to_string(o.slot) + ", " + std::to_string(o.bytes) +
                   " bytes" + (o.region ? ", in a region" : (o.pinned ? ", pinned" : ""));
        case operation_kind::batch:
            text += " " + std::to_string(o.number) + " from";
            [[fallthrough]];
        case operation_kind::get:
            text += " slot " + std::to_string(o.slot) + ", " +
                    kinds[static_cast<std::size_t>(o.destination)];
            if (o.destination == destination_kind::into)
                text += " buffer " + std::to_string(o.buffer) + " of " + std::to_string(o.bytes);
            return text + ", range " + std::to_string(o.offset) + "+" +
                   (o.length == 0 ? "all" : std::to_string(o.length)) + ", " +
                   std::string(to_string(o.policy)) + ", deadline " +
                   std::to_string(o.milliseconds) + " ms";
        case operation_kind::cancel:
            return text + " call " + std::to_string(o.number) + " back";
        default:
            return text + " peer n" + std::to_string(o.peer) + " slot " + std::to_string(o.slot) +
                   " buffer " + std::to_string(o.buffer);
    }
}

workload::workload(world& w) : world_(w) {
    for (std::size_t i = 0; i < w.size(); ++i) {
        auto u = std::make_unique<user>();
        ids_.push_back(w.core(i)->id());
        u->memory.resize(buffers * buffer_bytes);
        for (std::size_t b = 0; b < buffers; ++b) {
            auto& record = u->parts[b];
            record.bytes = std::span(u->memory).subspan(b * buffer_bytes, buffer_bytes);
            pattern::fill(record.bytes, pattern::poison);
            if (b + 1 == buffers || !w.rdma(i)->usable()) continue;
            auto made =
                w.rdma(i)->device()->register_memory(record.bytes, fabric::access::local_write);
            if (!made) continue;
            std::shared_ptr<fabric::memory_region> region = std::move(made.value());
            record.region = region;
            w.core(i)->consumer().regions().add(std::move(region));
        }
        users_.push_back(std::move(u));
    }
    w.nic().on_read([this](auto bytes) { nic_reads(bytes); });
    w.nic().on_write([this](auto bytes) { nic_writes(bytes); });
    w.on_payload_written = [this](auto bytes) { wrote(bytes, false); };
    w.before_destruction = [this](std::size_t node) {
        auto& u = *users_[node];
        while (!u.held.empty()) drop_held(u);
        if (world_.nic().dma_pending_into(u.memory))
            fail(world_.name(node) + ": a READ is pending after a quiet shutdown");
        for (auto& b : u.parts)
            if (b.state != buffer_state::free)
                fail(world_.name(node) + ": a buffer is not back after a quiet shutdown");
    };
}

workload::~workload() {
    world_.leak_all();
    world_.nic().on_read({});
    world_.nic().on_write({});
    world_.on_payload_written = {};
    world_.before_destruction = {};
}

void workload::run(const operation& o) {
    if (world_.trace) world_.say("user: " + describe(o));
    switch (o.kind) {
        case operation_kind::stage:
            return stage(o);
        case operation_kind::release:
            return release(o.slot);
        case operation_kind::get:
            return get(o);
        case operation_kind::batch:
            return batch(o);
        case operation_kind::cancel:
            return cancel(o);
        case operation_kind::connect:
            return connect(o);
        case operation_kind::metadata:
        case operation_kind::reference:
            return ask(o);
        default:
            return disturb(o);
    }
}

// --- Slots -------------------------------------------------------------------------------------

void workload::stage(const operation& o) {
    if (world_.gone(o.node) || world_.shutting_down(o.node)) return;
    release(o.slot);
    slot_record s;
    s.owner = o.node;
    s.id = random_.u64();
    s.salt = ++staged_ % pattern::salts;
    s.bytes = o.bytes;
    auto memory = std::make_unique<engine::slot_memory>();
    std::span<std::byte> bytes;
    auto& rdma = *world_.rdma(o.node);
    if (o.region && o.bytes != 0 && rdma.usable()) {
        bytes = stage_in_region(o, *memory, s);
        if (bytes.empty()) return;  // it fails, and there is no slot
    } else if (o.pinned && o.bytes != 0 && rdma.usable()) {
        auto block = rdma.memory().allocate(o.bytes);
        if (!block && block.error().why == reason::pool_exhausted &&
            rdma.memory().grow_for(o.bytes))
            block = rdma.memory().allocate(o.bytes);
        if (block) {
            memory->block = std::move(*block);
            memory->remote_key = memory->block.remote_key();
            bytes = memory->block.bytes();
            memory->pinned = s.pinned = true;
            if (world_.nic().dma_pending_into(bytes) || world_.nic().dma_pending_from(bytes))
                fail("a slot was staged in memory that a NIC may still touch");
        }
    }
    if (!s.pinned) {
        memory->plain = engine::allocate_plain(o.bytes);
        bytes = memory->plain.bytes();
    }
    pattern::fill(bytes, s.salt);
    memory->bytes = bytes;
    sources_.push_back({bytes, s.pinned});
    const std::shared_ptr<const engine::slot_memory> shared(memory.release(),
                                                            [this](const engine::slot_memory* m) {
                                                                slot_freed(m->bytes, m->pinned);
                                                                delete m;
                                                            });
    all_slots_.push_back(s);
    world_.env(o.node).post([this, o, index = all_slots_.size() - 1, id = s.id, shared]() mutable {
        world_.core(o.node)->owner().add_slot(id, std::move(shared));
        release(o.slot);  // somebody else may have staged there meanwhile
        current_[o.slot] = index;
    });
}

std::span<std::byte> workload::stage_in_region(const operation& o, engine::slot_memory& memory,
                                               slot_record& s) {
    auto& rdma = *world_.rdma(o.node);
    auto& device = *rdma.device();
    auto& bytes = shelves_.emplace_back(o.bytes);
    auto registered = device.register_memory(bytes, rdma.local_rights());
    if (!registered) return {};
    const std::shared_ptr<fabric::memory_region> region = std::move(registered.value());
    if (rdma.lease_keys() == wire::lease_mode::fence) {
        auto opened = device.register_memory(bytes, fabric::access::remote_read);
        if (!opened) return {};
        memory.remote_key = opened.value()->remote_key();
        memory.shared_key = std::move(opened.value());
    }
    s.region = region;
    memory.region = region;
    memory.pinned = s.pinned = true;
    world_.core(o.node)->consumer().regions().add(region);
    return bytes;
}

void workload::release(std::uint8_t slot) {
    const auto at = std::exchange(current_[slot], std::nullopt);
    if (!at) return;
    auto& s = all_slots_[*at];
    s.released = true;
    if (world_.gone(s.owner)) return;
    world_.env(s.owner).post([this, owner = s.owner, id = s.id] {
        if (auto* core = world_.core(owner)) core->owner().release(id);
    });
}

void workload::slot_freed(std::span<const std::byte> bytes, bool pinned) {
    const auto it = std::find_if(sources_.begin(), sources_.end(), [&](const source& s) {
        return s.bytes.data() == bytes.data() && s.bytes.size() == bytes.size();
    });
    if (it != sources_.end()) sources_.erase(it);
    if (!pinned) return;
    if (world_.nic().dma_pending_from(bytes))
        fail("a slot was freed while a READ of it is pending");
    // Whoever still reads it reads something else.
    pattern::fill({const_cast<std::byte*>(bytes.data()), bytes.size()}, pattern::poison);
}

// --- Gets --------------------------------------------------------------------------------------

void workload::get(const operation& o) {
    if (world_.gone(o.node) || !current_[o.slot]) return;
    call c;
    c.what = o;
    c.slot = *current_[o.slot];
    c.begun = world_.now();
    c.deadline = c.begun + std::chrono::milliseconds(o.milliseconds);
    if (o.destination == destination_kind::into)
        c.into = users_[o.node]->parts[o.buffer].bytes.first(o.bytes);
    calls_.push_back(c);
    world_.env(o.node).post([this, index = calls_.size() - 1] { launch(index); });
}

void workload::launch(std::size_t index) {
    auto& c = calls_[index];
    const auto& slot = all_slots_[c.slot];
    const auto& o = c.what;
    c.launched = true;
    if (!c.into.empty()) {
        auto& b = users_[o.node]->parts[o.buffer];
        c.expects_busy = b.state != buffer_state::free;
        if (!c.expects_busy) {
            if (!pattern::matches(b.bytes, pattern::poison))
                fail("a buffer was written after it had been given back");
            b.state = buffer_state::filling;
        }
    }
    world_.core(o.node)->consumer().get(
        sim_network::endpoint_of(slot.owner), ids_[slot.owner], request_of(c),
        [this, index](engine::transfer_answer a) { answered(index, std::move(a)); }, index);
}

engine::transfer_request workload::request_of(const call& c) const {
    const auto& o = c.what;
    engine::transfer_request r;
    r.slot = all_slots_[c.slot].id;
    r.offset = o.offset;
    r.length = o.length == 0 ? wire::whole_length : o.length;
    r.policy = o.policy;
    r.deadline = c.deadline;
    r.kind = o.destination;
    r.into = c.into;
    return r;
}

void workload::batch(const operation& o) {
    if (world_.gone(o.node)) return;
    const auto first = calls_.size();
    call c;
    c.what = o;
    c.batch = next_ask_--;
    c.begun = world_.now();
    c.deadline = c.begun + std::chrono::milliseconds(o.milliseconds);
    for (std::uint32_t i = 0; i < o.number; ++i) {
        const auto& at = current_[(o.slot + i) % slots];
        if (!at) continue;
        c.slot = *at;
        calls_.push_back(c);
    }
    world_.env(o.node).post([this, first, end = calls_.size(), c] {
        std::vector<engine::get_batch::item> items;
        for (auto i = first; i < end; ++i) {
            calls_[i].launched = true;
            const auto owner = all_slots_[calls_[i].slot].owner;
            items.push_back({sim_network::endpoint_of(owner), ids_[owner], request_of(calls_[i])});
        }
        world_.core(c.what.node)
            ->consumer()
            .get_all(
                std::move(items), c.deadline,
                [this, first, end](std::vector<engine::transfer_answer> all) {
                    if (all.size() != end - first) return fail("a batch lost an answer");
                    for (auto i = first; i < end; ++i) answered(i, std::move(all[i - first]));
                },
                c.batch, first);
    });
}

void workload::cancel(const operation& o) {
    if (o.number >= calls_.size()) return;
    const auto index = calls_.size() - 1 - o.number;
    auto& c = calls_[index];
    if (world_.gone(c.what.node)) return;
    world_.env(c.what.node).post([this, index] {
        auto& it = calls_[index];
        it.cancelled = true;
        if (it.batch != 0)
            for (auto& other : calls_) other.cancelled |= other.batch == it.batch;
        world_.core(it.what.node)->consumer().cancel(it.batch != 0 ? it.batch : index);
        if (it.launched && it.answers == 0) fail("a cancelled call was not answered at once");
    });
}

void workload::answered(std::size_t index, engine::transfer_answer a) {
    auto& c = calls_[index];
    const auto& o = c.what;
    if (world_.trace)
        world_.say("user n" + std::to_string(o.node) + ": call " + std::to_string(index) +
                   " answered: " +
                   (a.error.code ? a.error.message()
                                 : std::to_string(a.bytes) + " bytes, " +
                                       std::string(to_string(a.report.path)) + " (" +
                                       std::string(to_string(a.report.reason)) + ")") +
                   (a.quiet.resolved() ? "" : ", destination parked"));
    if (++c.answers > 1) return fail("call " + std::to_string(index) + " was answered twice");
    auto& u = *users_[o.node];
    const auto into = c.into;
    if (a.error.code)
        check_error(c, a.error);
    else
        check_success(c, a);
    if (!into.empty() && !c.expects_busy) {
        u.parts[o.buffer].state = buffer_state::parked;
        a.quiet.on_resolved([this, node = o.node, buffer = o.buffer, into] {
            if (world_.nic().dma_pending_into(into))
                fail("a destination was given back while a READ into it is pending");
            given_back(node, buffer);
        });
    }
    if (!a.error.code && o.destination != destination_kind::into) {
        if (world_.nic().dma_pending_into(a.data.bytes()))
            fail("data was given out while a READ into it is pending");
        u.held.push_back({std::move(a.data), all_slots_[c.slot].salt, o.offset});
        if (u.held.size() > 2) drop_held(u);
    }
}

void workload::given_back(std::size_t node, std::size_t buffer) {
    auto& b = users_[node]->parts[buffer];
    b.state = buffer_state::free;
    pattern::fill(b.bytes, pattern::poison);
}

void workload::drop_held(user& u) {
    const auto h = std::move(u.held.front());
    u.held.pop_front();
    if (!pattern::matches(h.data.bytes(), h.salt, h.offset))
        fail("data changed after it had been given out");
}

void workload::check_success(const call& c, const engine::transfer_answer& a) {
    const auto& s = all_slots_[c.slot];
    const auto& o = c.what;
    ++paths_[static_cast<std::size_t>(a.report.path)];
    if (o.offset > s.bytes) return fail("a range past the end of its slot was answered");
    const auto left = s.bytes - o.offset;
    const auto expected = o.length == 0 ? left : std::min<std::uint64_t>(left, o.length);
    const bool into = o.destination == destination_kind::into;
    const std::span<const std::byte> got =
        into ? c.into.first(std::min<std::size_t>(expected, c.into.size())) : a.data.bytes();
    if (a.bytes != expected || got.size() != expected)
        return fail("a get of " + std::to_string(expected) + " bytes was answered with " +
                    std::to_string(a.bytes));
    if (!pattern::matches(got, s.salt, o.offset)) fail("a get was answered with wrong bytes");
    if (into && !c.expects_busy) {
        const auto& whole = users_[o.node]->parts[o.buffer].bytes;
        if (!pattern::matches(whole.subspan(expected), pattern::poison, expected))
            fail("a get wrote beyond its range");
    }
    if (c.expects_busy) fail("a get was let into a destination that is still being filled");
    if (o.policy == path_policy::never && a.report.path == path::rdma)
        fail("RDMA ran although the policy is never");
    if (o.policy == path_policy::require && expected != 0 && a.report.path != path::rdma)
        fail("RDMA did not run although the policy is require");
    if ((a.report.path == path::rdma) != (a.report.reason == reason::ok))
        fail("the reason does not go with the path: " + std::string(to_string(a.report.path)) +
             ", " + std::string(to_string(a.report.reason)));
}

void workload::check_error(const call& c, const failure& f) {
    if (f.detail.empty()) fail("an error without a detail: " + f.message());
    if (!allowed(c, f.code)) fail("an error that nothing explains: " + f.message());
}

bool workload::allowed(const call& c, const error_code& e) const {
    const auto& s = all_slots_[c.slot];
    const auto& o = c.what;
    const auto left = o.offset > s.bytes ? 0 : s.bytes - o.offset;
    const auto range = o.length == 0 ? left : std::min<std::uint64_t>(left, o.length);
    const bool required = o.policy == path_policy::require;
    const auto is = [&](auto code) { return e == make_error_code(code); };
    if (c.expects_busy) return is(request_errc::buffer_busy) || is(node_errc::stopped);
    const bool unregistered = !c.into.empty() && users_[o.node]->parts[o.buffer].unregistered;
    if (is(request_errc::cancelled)) return c.cancelled || unregistered;
    if (is(request_errc::deadline_exceeded)) {
        // In its natural order, and with nothing in its way, a get takes far less.
        const bool excused = slowed_ || !natural_since_ || *natural_since_ + 250ms > c.deadline;
        return world_.now() >= c.deadline && excused;
    }
    if (is(request_errc::not_found)) return s.released || world_.shutting_down(s.owner);
    if (is(request_errc::out_of_range)) return o.offset > s.bytes;
    if (is(request_errc::invalid_argument))
        return o.destination == destination_kind::into && range > c.into.size();
    if (is(request_errc::busy)) return true;
    if (is(request_errc::not_pinned)) return required && !s.pinned;
    if (is(request_errc::path_not_available)) return required;
    if (is(request_errc::refused)) return world_.shutting_down(s.owner);
    if (is(node_errc::stopped)) return world_.shutting_down(o.node);
    if (e.category() == connection_category() || e.category() == device_category())
        return e != make_error_code(connection_errc::protocol) &&
               e != make_error_code(connection_errc::wrong_owner) &&
               (disturbed_ || required || world_.shutting_down(s.owner) || !natural_since_);
    if (is(lease_errc::lost)) return required || disturbed_ || world_.now() >= c.begun + 20ms;
    return false;
}

// --- Other wishes ------------------------------------------------------------------------------

void workload::connect(const operation& o) {
    if (world_.gone(o.node)) return;
    world_.env(o.node).post([this, o] {
        const auto answers = std::make_shared<unsigned>(0);
        asked_.push_back({o.node, answers});
        world_.core(o.node)->consumer().connect(
            sim_network::endpoint_of(o.peer), world_.now() + 50ms,
            [this, answers, o](const failure& f, node_id owner) {
                if (++*answers > 1) fail("a connect was answered twice");
                if (!f.code && owner != ids_[o.peer]) fail("a connect found another owner");
            },
            next_ask_--);
    });
}

void workload::ask(const operation& o) {
    if (world_.gone(o.node) || !current_[o.slot]) return;
    const auto& s = all_slots_[*current_[o.slot]];
    wire::body request = wire::metadata_request{s.id};
    if (o.kind == operation_kind::reference)
        request = wire::reference{
            s.id, o.pinned ? wire::reference_change::add : wire::reference_change::release};
    world_.env(o.node).post([this, node = o.node, slot = *current_[o.slot], request]() mutable {
        const auto& it = all_slots_[slot];
        auto answers = std::make_shared<unsigned>(0);
        asked_.push_back({node, answers});
        world_.core(node)->consumer().ask(
            sim_network::endpoint_of(it.owner), ids_[it.owner], std::move(request),
            world_.now() + 50ms,
            [this, answers, slot](const failure& f, const wire::body* body) {
                if (++*answers > 1) fail("a request was answered twice");
                if (f.code) return;
                const auto* m = std::get_if<wire::metadata_reply>(body);
                if (m != nullptr && m->found && m->bytes != all_slots_[slot].bytes)
                    fail("metadata tells another size");
            },
            next_ask_--);
    });
}

void workload::disturb(const operation& o) {
    auto& nic = world_.nic();
    if (world_.gone(o.node)) return;
    disturbed_ = true;
    slowed_ = slowed_ || o.kind == operation_kind::pause || o.kind == operation_kind::shut_down;
    switch (o.kind) {
        case operation_kind::unregister:
            users_[o.node]->parts[o.buffer].unregistered = true;
            unregister(o.node, users_[o.node]->parts[o.buffer].region, o.milliseconds / 16);
            break;
        case operation_kind::take_back:
            if (const auto at = current_[o.slot]; at && !all_slots_[*at].region.expired()) {
                all_slots_[*at].released = true;
                unregister(all_slots_[*at].owner, all_slots_[*at].region, o.milliseconds / 16);
            }
            break;
        case operation_kind::cut:
            world_.net().cut(o.node, o.peer);
            break;
        case operation_kind::pause:
            world_.pause(o.node, true);
            break;
        case operation_kind::resume:
            world_.pause(o.node, false);
            break;
        case operation_kind::drop:
            nic.drop_between(host(o.node), host(o.peer), true);
            break;
        case operation_kind::undrop:
            nic.drop_between(host(o.node), host(o.peer), false);
            break;
        case operation_kind::link_down:
            nic.set_link(host(o.node), "sim0", 1, false);
            break;
        case operation_kind::link_up:
            nic.set_link(host(o.node), "sim0", 1, true);
            break;
        case operation_kind::fail_wiring:
            nic.fail_ready_to_receive(host(o.node), ETIMEDOUT);
            break;
        case operation_kind::false_success:
            nic.false_success(host(o.node));
            break;
        case operation_kind::refuse_read:
            nic.refuse_reads(host(o.node));
            break;
        case operation_kind::lose_gid:
            nic.set_gids(host(o.node), "sim0", 1, {});
            break;
        case operation_kind::regain_gid:
            nic.set_gids(host(o.node), "sim0", 1, world::gids_of(o.node));
            break;
        case operation_kind::refuse_connects:
            world_.net().refuse_connections_to(o.node, true);
            break;
        case operation_kind::accept_connects:
            world_.net().refuse_connections_to(o.node, false);
            break;
        case operation_kind::shut_down:
            if (!world_.shutting_down(o.node))
                world_.shut_down(o.node, std::chrono::milliseconds(o.milliseconds));
            break;
        default:
            break;
    }
}

void workload::unregister(std::size_t node, const std::weak_ptr<fabric::memory_region>& region,
                          std::uint32_t milliseconds) {
    if (world_.gone(node)) return;
    const auto deadline = world_.now() + std::chrono::milliseconds(milliseconds);
    world_.env(node).post([this, node, region, deadline] {
        if (auto r = region.lock())
            world_.core(node)->unregister(std::move(r), deadline, [this, node] {
                // It takes leases away before their time, as in a shutdown.
                world_.leases().shutting_down(node);
            });
    });
}

// --- The NIC and the memory --------------------------------------------------------------------

void workload::nic_reads(std::span<const std::byte> bytes) {
    const bool staged = std::any_of(sources_.begin(), sources_.end(), [&](const source& s) {
        return s.pinned && within(bytes, s.bytes);
    });
    if (!staged) fail("a NIC read bytes of a slot that has been freed");
}

void workload::nic_writes(std::span<const std::byte> bytes) { wrote(bytes, true); }

void workload::wrote(std::span<const std::byte> bytes, bool by_nic) {
    for (const auto& u : users_) {
        for (const auto& b : u->parts) {
            if (!overlap(bytes, b.bytes)) continue;
            if (b.state == buffer_state::free)
                fail("a destination was written after it had been given back");
            else if (b.state == buffer_state::parked && !by_nic)
                fail("chunk bytes were written into a parked destination");
        }
        for (const auto& h : u->held)
            if (overlap(bytes, h.data.bytes())) fail("data was written after it was given out");
    }
}

// --- The end -----------------------------------------------------------------------------------

void workload::release_all() {
    for (std::size_t i = 0; i < slots; ++i) release(static_cast<std::uint8_t>(i));
}

void workload::end_disturbances() {
    for (std::size_t i = 0; i < world_.size(); ++i) {
        world_.pause(i, false);
        world_.nic().set_link(host(i), "sim0", 1, true);
        world_.nic().set_gids(host(i), "sim0", 1, world::gids_of(i));
        world_.nic().fail_ready_to_receive(host(i), 0, 0);
        world_.nic().false_success(host(i), 0);
        world_.nic().refuse_reads(host(i), 0);
        world_.net().refuse_connections_to(i, false);
        for (std::size_t j = 0; j < i; ++j) world_.nic().drop_between(host(i), host(j), false);
    }
}

void workload::check_answered() {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
        const auto& c = calls_[i];
        if (c.answers == 0 && c.launched && !world_.paused(c.what.node))
            fail("call " + std::to_string(i) + " was never answered");
    }
    for (const auto& a : asked_)
        if (*a.answers == 0 && !world_.paused(a.node))
            fail("a connect or request was never answered");
}

void workload::check_deadlines() {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
        const auto& c = calls_[i];
        if (c.answers == 0 && c.launched && !world_.paused(c.what.node) &&
            c.deadline < world_.now())
            fail("call " + std::to_string(i) + " was not answered at its deadline");
    }
}

void workload::check_buffers() {
    bool all_quiet = true;
    for (std::size_t i = 0; i < users_.size(); ++i) {
        // What could not be proven quiet in time is leaked on purpose.
        all_quiet = all_quiet && !world_.shutdown_failed(i);
        if (world_.paused(i) || world_.shutdown_failed(i)) continue;
        for (const auto& b : users_[i]->parts) {
            if (b.state != buffer_state::free)
                fail(world_.name(i) + ": a destination was never given back");
            else if (!pattern::matches(b.bytes, pattern::poison))
                fail("a buffer was written after it had been given back");
        }
    }
    if (!all_quiet) return;
    for (const auto& s : sources_)
        fail("a slot of " + std::to_string(s.bytes.size()) + " bytes was never freed");
}

}  // namespace rvget::test
