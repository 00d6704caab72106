#include "engine/rdma_context.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/lease_key_proof.hpp"
#include "fabric/inventory/netdev_address.hpp"
#include "route/retry.hpp"

namespace rvget::engine {

/// Entries of the shared reading queue where the device has that many: some 900 lanes at depth 16.
constexpr std::uint32_t reading_entries = 16'384;
constexpr std::uint32_t serving_entries = 16;

rdma_context::rdma_context(const node_options& options)
    : options_(options),
      pins_{.device = options.device,
            .gid = route::parse_gid(options.gid),
            .gid_index = options.gid_index} {
    const auto plan = route::plan_retries(options.retry_window);
    retry_.timeout_exponent = plan.timeout_exponent;
    retry_.retry_count = plan.retry_count;
    retry_.rnr_retry_count = plan.retry_count;
    retry_window_ = plan.window;
    pool_ = std::make_unique<pool>(nullptr, pool_options{});
}

std::shared_ptr<rdma_context> rdma_context::open(fabric::provider* provider,
                                                 const node_options& options,
                                                 std::optional<wire::lease_mode> unproven) {
    auto context = std::make_shared<rdma_context>(options);
    if (options.rdma_disabled) {
        context->why_not_ = reason::kill_switch;
        context->why_not_detail_ = "RDMA is switched off by configuration or RVGET_RDMA_DISABLE";
        return context;
    }
    if (provider == nullptr) {
        context->why_not_detail_ = "no RDMA provider is built in";
        return context;
    }
    if (auto opened = context->open_device(*provider, unproven); !opened) {
        context->device_.reset();
        context->why_not_detail_ = opened.error().detail;
        log(log_level::info, "rdma=off reason=" + std::string(to_string(context->why_not_)) +
                                 " cause=" + quoted(context->why_not_detail_));
    }
    return context;
}

/// The strongest keys that the device proves able to give, or those that were asked for.
result<void> rdma_context::settle_lease_keys(std::optional<wire::lease_mode> unproven) {
    if (unproven) {
        lease_keys_ = *unproven;
        return {};
    }
    using choice = lease_key_choice;
    // A mere consumer grants no lease, and a shared key takes nothing away: nothing to prove.
    if (!options_.listen || options_.lease_keys == choice::fence) return {};
    std::vector<wire::lease_mode> wanted;  // strongest first
    if (options_.lease_keys != choice::exact) wanted.push_back(wire::lease_mode::window);
    if (options_.lease_keys != choice::window) wanted.push_back(wire::lease_mode::exact);
    for (const auto mode : wanted) {
        auto proven = prove_lease_key(*this, mode);
        if (proven) {
            lease_keys_ = mode;
            return {};
        }
        lease_keys_detail_ += (lease_keys_detail_.empty() ? "" : "; ") +
                              std::string(to_string(mode)) + ": " + proven.error().detail;
    }
    return failure{device_errc::none,
                   "device " + device_->facts().name + " cannot take a lease's key away again (" +
                       lease_keys_detail_ +
                       "); where all consumers are trusted, lease_keys=fence does without"};
}

result<void> rdma_context::open_device(fabric::provider& provider,
                                       std::optional<wire::lease_mode> unproven) {
    auto listed = provider.list();
    if (!listed) return listed.error();
    const auto usable = [&](const route::device_facts& d) {
        return (pins_.device.empty() || d.name == pins_.device) && port_to_use(d) != nullptr;
    };
    const auto found = std::find_if(listed.value().begin(), listed.value().end(), usable);
    if (found == listed.value().end()) {
        std::string what = "no RDMA device";
        if (!pins_.device.empty()) what += " named " + pins_.device;
        what += pins_.gid ? " with an active port that has the GID " + pins_.gid->to_string()
                          : " with an active port and a GID";
        if (pins_.gid_index) what += " at index " + std::to_string(*pins_.gid_index);
        return failure{device_errc::none,
                       what + "; see `rvget list`, `ibv_devinfo` and `rdma link`"};
    }
    auto opened = provider.open(found->name);
    if (!opened) return opened.error();
    device_ = std::move(opened.value());
    const auto& facts = device_->facts();
    needs_cm_ = facts.is_iwarp();
    const auto depth = [&](std::uint32_t most) {
        return static_cast<std::uint8_t>(std::min<std::uint32_t>(most, options_.read_depth));
    };
    initiator_depth_ = depth(facts.max_read_depth_initiator);
    responder_depth_ = depth(facts.max_read_depth_responder);

    free_entries_ = all_entries_ = std::min(reading_entries, facts.max_completion_entries);
    auto reading = device_->create_completion_queue(free_entries_);
    if (!reading) return reading.error();
    reading_queue_ = std::move(reading.value());
    auto serving = device_->create_completion_queue(serving_entries);
    if (!serving) return serving.error();
    serving_queue_ = std::move(serving.value());

    if (auto r = settle_lease_keys(unproven); !r) return r.error();

    pool_options po;
    // Its own key opens an arena to a remote side only where leases have no keys of their own.
    po.rights = local_rights();
    if (lease_keys_ == wire::lease_mode::fence && options_.listen)
        po.rights = po.rights | fabric::access::remote_read;
    po.first_arena_bytes = options_.first_arena_bytes;
    po.max_arena_bytes = options_.max_arena_bytes;
    po.dedicated_bytes = std::min(po.dedicated_bytes, options_.max_arena_bytes);
    po.budget_bytes = options_.registered_budget_bytes;
    po.bounce_bytes = options_.bounce_budget_bytes.value_or(options_.registered_budget_bytes);
    auto memory = std::make_unique<pool>(device_, po);
    if (auto grown = memory->grow_for(1); !grown) {
        // A device that takes no memory is no use; memlock is the usual cause and in the detail.
        why_not_ =
            grown.error().why == reason::registration ? reason::registration : grown.error().why;
        return failure{device_errc::registration, grown.error().detail};
    }
    pool_ = std::move(memory);
    return {};
}

template <class Register>
result<registration> rdma_context::register_in_budget(std::span<std::byte> memory, Register&& how) {
    auto claim = pool_->claim(memory);
    if (!claim) return failure{device_errc::registration, claim.error().detail};
    auto region = how();
    if (!region) return region.error();
    return registration{std::move(*claim), std::move(*region)};
}

result<registration> rdma_context::register_memory(std::span<std::byte> memory,
                                                   fabric::access rights) {
    return register_in_budget(memory, [&] { return device_->register_memory(memory, rights); });
}

result<registration> rdma_context::register_dmabuf(int descriptor, std::uint64_t offset,
                                                   std::span<std::byte> mapped,
                                                   fabric::access rights) {
    return register_in_budget(
        mapped, [&] { return device_->register_dmabuf(descriptor, offset, mapped, rights); });
}

fabric::access rdma_context::local_rights() const noexcept {
    using fabric::access;
    auto rights = access::local_write;
    if (lease_keys_ == wire::lease_mode::window) rights = rights | access::window_bind;
    if (needs_cm_ && !options_.listen) rights = rights | access::remote_write;
    return rights;
}

std::string local_port::zoned(const route::gid& peer) const {
    return peer.to_string() + (peer.is_link_local() ? "%" + netdev : "");
}

result<route::choice> rdma_context::choose(const route::control_path& control) const {
    const std::lock_guard lock(facts_mutex_);
    if (auto r = device_->refresh(); !r) return r.error();
    return route::choose(std::span(&device_->facts(), 1), control, pins_);
}

result<local_port> rdma_context::choose_port(const std::string& own_address,
                                             const std::string& peer_address) const {
    const auto choice = choose({own_address, peer_address});
    if (!choice) return choice.error();
    const auto* winner = choice->winner();
    if (winner == nullptr) return failure{device_errc::none, choice->refusal};
    const std::lock_guard lock(facts_mutex_);
    const auto& facts = device_->facts();
    local_port port;
    port.identity = {.port = winner->port,
                     .gid = winner->entry.gid,
                     .gid_type = winner->entry.type,
                     .gid_index = winner->entry.index,
                     .lid = winner->lid,
                     .active_mtu = winner->active_mtu};
    port.device = facts.name;
    port.gid = winner->entry.gid.to_string();
    port.netdev = winner->entry.netdev;
    for (const auto& p : facts.ports) {
        if (p.number != winner->port) continue;
        port.max_message_bytes = p.max_message_bytes;
        if (port.netdev.empty()) port.netdev = p.netdev;
    }
    // The GIDs of RoCE are addresses; other devices have those of their netdev.
    if (winner->link_layer == route::link_layer::ethernet)
        port.address = port.zoned(winner->entry.gid);
    else
        port.address = fabric::inventory::address_of(port.netdev, own_address);
    return port;
}

result<local_port> rdma_context::own_port() const {
    const auto ports = device_->facts().ports;  // copied: a choice refreshes the table
    failure last(device_errc::none, "no active port with a GID that a queue pair can use");
    for (const auto& p : ports)
        for (const auto& entry : p.gids) {
            const auto self = entry.gid.to_string();
            auto port = choose_port(self, self);
            if (port) return port;
            last = port.error();
        }
    return last;
}

/// The first that has a GID within the pins; null where there is none.
const route::port_facts* rdma_context::port_to_use(const route::device_facts& d) const {
    const auto wanted = [&](const route::gid_entry& entry) {
        return entry.gid == pins_.gid.value_or(entry.gid) &&
               entry.index == pins_.gid_index.value_or(entry.index);
    };
    for (const auto& p : d.ports)
        if (p.state == route::port_state::active && std::ranges::any_of(p.gids, wanted)) return &p;
    return nullptr;
}

result<std::uint8_t> rdma_context::first_active_port() const {
    const std::lock_guard lock(facts_mutex_);
    if (const auto* p = port_to_use(device_->facts())) return p->number;
    return failure{device_errc::none,
                   "device " + device_->facts().name + " has no active port with a GID"};
}

result<std::unique_ptr<fabric::queue_pair>> rdma_context::create_queue_pair(
    std::shared_ptr<fabric::completion_queue> completions, std::uint8_t port,
    const fabric::queue_pair_options& options) const {
    const std::lock_guard lock(facts_mutex_);  // it reads the port table that a refresh replaces
    return device_->create_queue_pair(std::move(completions), port, options);
}

result<std::uint32_t> rdma_context::gid_index_of(const fabric::port_identity& identity) const {
    const std::lock_guard lock(facts_mutex_);
    if (auto r = device_->refresh(); !r) return r.error();
    std::optional<std::uint32_t> elsewhere;
    for (const auto& p : device_->facts().ports)
        if (p.number == identity.port)
            for (const auto& entry : p.gids) {
                if (entry.gid != identity.gid || entry.type != identity.gid_type) continue;
                if (entry.index == identity.gid_index) return entry.index;
                if (!elsewhere) elsewhere = entry.index;
            }
    if (elsewhere) return *elsewhere;
    return failure{device_errc::query_failed,
                   "device " + device_->facts().name + " port " + std::to_string(identity.port) +
                       " has no GID " + identity.gid.to_string() +
                       " any more: the address was removed from its netdev"};
}

bool rdma_context::reserve_entries(std::uint32_t entries) noexcept {
    if (entries > free_entries_) return false;
    free_entries_ -= entries;
    return true;
}

bool rdma_context::reserve_spare_entries(std::uint32_t entries) noexcept {
    return free_entries_ >= all_entries_ / 2 + entries && reserve_entries(entries);
}

void rdma_context::return_entries(std::uint32_t entries) noexcept { free_entries_ += entries; }

void rdma_context::attach(std::uint32_t queue_pair_number, completion_sink& sink) {
    sinks_[queue_pair_number] = &sink;
}

void rdma_context::detach(std::uint32_t queue_pair_number) { sinks_.erase(queue_pair_number); }

void rdma_context::resource_gone() {
    if (--resources_ != 0) return;
    for (auto& f : std::exchange(no_resources_, {})) f();
}

void rdma_context::when_no_resources(unique_function<void()> f) {
    if (resources_ == 0)
        f();
    else
        no_resources_.push_back(std::move(f));
}

/// Gets go on in chunks; what the NIC may still write stays parked, because nothing will prove that
/// it is done.
void rdma_context::lose(const failure& why) {
    if (lost_) return;
    why_not_ = reason::no_route;
    why_not_detail_ = "device " + device_->facts().name + " was lost: " + why.message() +
                      "; restart the node to use it again";
    lost_ = true;
    log(log_level::error, "rdma=off reason=" + std::string(to_string(why_not_)) +
                              " cause=" + quoted(why_not_detail_));
    auto sinks = sinks_;
    for (auto& [number, sink] : sinks)
        if (sinks_.contains(number)) sink->on_lost(why);
}

std::size_t rdma_context::poll() {
    std::size_t total = 0;
    while (!lost_) {
        auto n = reading_queue_->poll(batch_);
        if (!n) {
            lose(n.error());
            return total;
        }
        total += n.value();
        for (std::size_t i = 0; i < n.value(); ++i) {
            // A handler may detach any lane: look each one up as it comes.
            const auto it = sinks_.find(batch_[i].queue_pair_number);
            if (it != sinks_.end()) it->second->on_completion(batch_[i]);
        }
        if (n.value() < batch_.size()) return total;
    }
    return total;
}

void rdma_context::arm() {
    if (lost_) return;
    if (auto r = reading_queue_->arm(); !r) lose(r.error());
}

int rdma_context::event_descriptor() const { return reading_queue_->event_descriptor(); }

void rdma_context::consume_events() { reading_queue_->consume_events(); }

}  // namespace rvget::engine
