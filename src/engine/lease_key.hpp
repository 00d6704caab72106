#pragma once
// What lets one consumer's NIC READ one leased range, and how it is taken away again.

#include <cstdint>
#include <memory>
#include <span>

#include <rvget/error.hpp>

#include "base/function.hpp"
#include "engine/services.hpp"
#include "engine/slot.hpp"
#include "wire/descriptor.hpp"

namespace rvget::engine {

/// Lives on the strand. Keeps the memory until no NIC can read it with this key.
class lease_key {
public:
    virtual ~lease_key() = default;
    [[nodiscard]] virtual wire::lease_mode mode() const noexcept = 0;
    [[nodiscard]] virtual std::uint32_t remote_key() const noexcept = 0;
    /// Takes the right away; `proven` runs when no READ with this key can reach the memory any
    /// more. Repeatable: each caller is told.
    virtual void revoke(unique_function<void()> proven) = 0;
    /// The consumer promised that it is done.
    virtual void retire() {
        revoke([] {});
    }
};

/// A key, or why there is none. Called once, perhaps from within the call that asks.
using lease_key_made = unique_function<void(result<std::shared_ptr<lease_key>>)>;

/// A registration of the range alone, made for one lease and undone at its end (`exact`). Its key
/// reads from whatever queue pair of this node a consumer has.
void make_exact_key(services& s, const std::shared_ptr<const slot_memory>& memory,
                    std::span<const std::byte> range, lease_key_made done);

}  // namespace rvget::engine
