#pragma once
// Control connections that carry nothing until both ends have proved that they know the same
// secret.

#include <memory>
#include <string>

#include <rvget/handle.hpp>

#include "engine/control_link.hpp"
#include "engine/environment.hpp"

namespace rvget::engine {

/// The connections of `inner`, each with the exchange of secret_handshake.hpp before the first
/// frame of its user: what is sent earlier waits, what the peer says earlier ends the connection,
/// without a word to it. The user bounds how long that may take and how many may be at it. Borrows
/// both.
std::unique_ptr<control_network> make_secret_network(environment& env, control_network& inner,
                                                     node_id self, std::string secret);

}  // namespace rvget::engine
