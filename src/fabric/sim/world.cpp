#include "fabric/sim/world.hpp"

#include <algorithm>
#include <stdexcept>

namespace rvget::fabric::sim {
namespace {

// Numbers and keys are spread out so that a guess, an index or a key that is off by one names
// nothing, and are never given out twice.
constexpr std::uint32_t first_queue_pair_number = 0x11;
constexpr std::uint32_t first_key = 0x1000;
constexpr std::uint32_t key_stride = 37;

bool contains(std::span<const std::byte> outer, std::uint64_t address,
              std::uint64_t bytes) noexcept {
    const auto begin = reinterpret_cast<std::uint64_t>(outer.data());
    return address >= begin && bytes <= outer.size() && address - begin <= outer.size() - bytes;
}

bool overlaps(std::span<const std::byte> a, std::uint64_t address, std::uint64_t bytes) noexcept {
    const auto begin = reinterpret_cast<std::uint64_t>(a.data());
    return bytes != 0 && !a.empty() && address < begin + a.size() && begin < address + bytes;
}

bool overlaps(std::span<const std::byte> a, const std::byte* at, std::size_t bytes) noexcept {
    return overlaps(a, reinterpret_cast<std::uint64_t>(at), bytes);
}

}  // namespace

// --- Hosts -------------------------------------------------------------------------------------

std::size_t world::add_host(host_options options) {
    for (const auto& h : hosts_) {
        if (h->name == options.name) {
            throw std::invalid_argument("sim: host name taken: " + options.name);
        }
    }
    auto host = std::make_unique<host_record>();
    host->name = std::move(options.name);
    for (auto& device : options.devices) {
        auto n = std::make_unique<nic>();
        n->host = hosts_.size();
        n->options = std::move(device);
        host->nics.push_back(std::move(n));
    }
    hosts_.push_back(std::move(host));
    return hosts_.size() - 1;
}

std::size_t world::host_named(std::string_view name) const {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
        if (hosts_[i]->name == name) return i;
    }
    throw std::out_of_range("sim: no such host: " + std::string(name));
}

std::pair<nic&, route::port_facts&> world::port_of(std::string_view host, std::string_view device,
                                                   std::uint8_t port) {
    for (auto& n : hosts_[host_named(host)]->nics) {
        if (n->options.facts.name != device) continue;
        for (auto& p : n->options.facts.ports) {
            if (p.number == port) return {*n, p};
        }
    }
    throw std::out_of_range("sim: no such port: " + std::string(host) + "/" + std::string(device));
}

bool world::gid_in_use(const std::array<std::uint8_t, 16>& gid) const {
    for (const auto& h : hosts_) {
        if (!h->alive) continue;
        for (const auto& n : h->nics) {
            for (const auto& p : n->options.facts.ports) {
                if (std::any_of(p.gids.begin(), p.gids.end(),
                                [&](const auto& entry) { return entry.gid.bytes == gid; })) {
                    return true;
                }
            }
        }
    }
    return false;
}

void world::raise(nic& at, const async_event& event) {
    for (auto* queue : at.opened) {
        queue->events.push_back(event);
        queue->flag.raise();
    }
}

// --- Keys, regions, windows --------------------------------------------------------------------

std::uint32_t world::new_key(const key_record& record) {
    keys_.push_back(record);
    return first_key + static_cast<std::uint32_t>(keys_.size() - 1) * key_stride;
}

const key_record* world::key(std::uint32_t value) const noexcept {
    if (value < first_key || (value - first_key) % key_stride != 0) return nullptr;
    const std::size_t index = (value - first_key) / key_stride;
    return index < keys_.size() ? &keys_[index] : nullptr;
}

void world::kill_key(std::uint32_t value) noexcept {
    keys_[(value - first_key) / key_stride] = key_record{};
}

void world::add_region(region_record& region) {
    region.local_key = new_key({key_record::kind::local, 0, &region});
    region.remote_key = new_key({key_record::kind::remote, 0, &region});
    region.nic->registered_bytes += region.bytes.size();
}

void world::remove_region(region_record& region) {
    kill_key(region.local_key);
    kill_key(region.remote_key);
    region.nic->registered_bytes -= region.bytes.size();
    if (!hosts_[region.nic->host]->alive) return;
    for (const auto* w : windows_) {
        if (w != nullptr && w->bound && w->region_key == region.local_key) {
            violation("host " + hosts_[w->host]->name + ": region deregistered with window " +
                      std::to_string(w->index) + " bound over it");
        }
    }
    for (const auto* q : live_) {
        if (q->domain != region.domain) continue;
        for (auto i = q->sends.front(); i != q->sends.back(); ++i) {
            const auto& wr = q->sends[i];
            const bool data = wr.kind == operation::read || wr.kind == operation::send;
            if (data && !wr.inline_data && wr.local_key == region.local_key) {
                violation(name_of(*q) + ": region deregistered under posted " +
                          (wr.kind == operation::read ? "READ " : "SEND ") + std::to_string(wr.id));
            }
        }
        for (auto i = q->receives.front(); i != q->receives.back(); ++i) {
            if (q->receives[i].local_key == region.local_key) {
                violation(name_of(*q) + ": region deregistered under posted receive " +
                          std::to_string(q->receives[i].id));
            }
        }
    }
}

void world::add_window(window_record& window) {
    window.index = static_cast<std::uint32_t>(windows_.size());
    windows_.push_back(&window);
}

void world::remove_window(window_record& window) {
    windows_[window.index] = nullptr;
    if (!hosts_[window.host]->alive) return;
    for (const auto* q : live_) {
        if (q->domain != window.domain) continue;
        for (auto i = q->executed; i != q->sends.back(); ++i) {
            const auto& wr = q->sends[i];
            if (wr.kind == operation::bind && wr.window == window.index) {
                violation(name_of(*q) + ": window destroyed under posted bind " +
                          std::to_string(wr.id));
            }
        }
    }
}

std::uint32_t world::new_window_key(const window_record& window) {
    return new_key({key_record::kind::window, window.index, nullptr});
}

bool world::local_allowed(const queue_pair_record& q, std::uint32_t local_key,
                          std::span<const std::byte> memory, access needed) const noexcept {
    if (memory.empty()) return true;
    const auto* k = key(local_key);
    if (k == nullptr || k->what != key_record::kind::local) return false;
    const auto& region = *k->region;
    return region.domain == q.domain && (needed == access::none || has(region.rights, needed)) &&
           contains(region.bytes, reinterpret_cast<std::uint64_t>(memory.data()), memory.size());
}

bool world::remote_read_allowed(const queue_pair_record& responder,
                                const work_request& read) const noexcept {
    if (read.bytes == 0) return true;  // no byte is read, so no key is looked at (as on rxe)
    const auto* k = key(read.remote_key);
    if (k == nullptr) return false;
    if (k->what == key_record::kind::remote) {
        const auto& region = *k->region;
        return region.domain == responder.domain && has(region.rights, access::remote_read) &&
               contains(region.bytes, read.remote_address, read.bytes);
    }
    if (k->what != key_record::kind::window) return false;
    const auto* w = windows_[k->window];
    if (w == nullptr || !w->bound || w->key != read.remote_key) return false;
    const auto* beneath = key(w->region_key);
    return w->queue_pair_number == responder.number && has(w->rights, access::remote_read) &&
           beneath->what == key_record::kind::local &&
           contains(w->range, read.remote_address, read.bytes);
}

// --- Queues ------------------------------------------------------------------------------------

void world::remove_completion_queue(const completion_queue_record& queue) {
    if (queue.entries.size() != 0 && hosts_[queue.host]->alive) {
        violation("host " + hosts_[queue.host]->name + ": completion queue destroyed with " +
                  std::to_string(queue.entries.size()) + " completions not polled");
    }
}

void world::add_queue_pair(queue_pair_record& q) {
    q.number = first_queue_pair_number + static_cast<std::uint32_t>(by_number_.size());
    by_number_.push_back(&q);
    q.live_position = live_.size();
    live_.push_back(&q);
}

void world::remove_queue_pair(queue_pair_record& q) {
    if (hosts_[q.host]->alive) {
        if (q.sends.size() != 0) {
            violation(name_of(q) + " destroyed with " + std::to_string(q.sends.size()) +
                      " send requests posted");
        }
        if (q.receives.size() != 0) {
            violation(name_of(q) + " destroyed with " + std::to_string(q.receives.size()) +
                      " receives posted");
        }
    }
    for (auto* w : windows_) {
        if (w == nullptr || !w->bound || w->queue_pair_number != q.number) continue;
        if (hosts_[q.host]->alive) {
            violation(name_of(q) + " destroyed with window " + std::to_string(w->index) + " bound");
        }
        w->bound = false;
    }
    for (std::size_t l = 0; l < lane_count; ++l) set_runnable(q, static_cast<lane>(l), false);
    by_number_[q.number - first_queue_pair_number] = nullptr;
    live_.back()->live_position = q.live_position;
    live_[q.live_position] = live_.back();
    live_.pop_back();
    if (auto* peer = peer_of(q)) update(*peer);
}

queue_pair_record* world::find(std::uint32_t number) const noexcept {
    const std::size_t index = number - first_queue_pair_number;
    return number >= first_queue_pair_number && index < by_number_.size() ? by_number_[index]
                                                                          : nullptr;
}

queue_pair_record* world::peer_of(const queue_pair_record& q) const noexcept {
    return find(q.receive.peer.number);
}

std::string world::name_of(const queue_pair_record& q) const {
    return "host " + hosts_[q.host]->name + ": queue pair " + std::to_string(q.number);
}

// --- Oracles -----------------------------------------------------------------------------------

bool world::pending_into(std::span<const std::byte> memory) const {
    for (const auto* q : live_) {
        if (!hosts_[q->host]->alive) continue;
        for (auto i = q->sends.front(); i != q->sends.back(); ++i) {
            const auto& wr = q->sends[i];
            if (wr.kind == operation::read && overlaps(memory, wr.local, wr.bytes)) return true;
        }
        for (auto i = q->receives.front(); i != q->receives.back(); ++i) {
            const auto& buffer = q->receives[i].buffer;
            if (overlaps(memory, buffer.data(), buffer.size())) return true;
        }
    }
    return false;
}

bool world::pending_from(std::span<const std::byte> memory) const {
    for (const auto* q : live_) {
        if (!hosts_[q->host]->alive) continue;
        for (auto i = q->sends.front(); i != q->sends.back(); ++i) {
            const auto& wr = q->sends[i];
            if (wr.kind == operation::send) {
                if (!wr.inline_data && overlaps(memory, wr.local, wr.bytes)) return true;
            } else if (wr.kind == operation::read && i >= q->executed) {
                const bool source =
                    overlaps(memory, wr.remote_address + wr.done, wr.bytes - wr.done);
                if (source && servable(*q, i)) return true;
            }
        }
    }
    return false;
}

}  // namespace rvget::fabric::sim
