#include "engine/schedules/describe.hpp"

#include <variant>

namespace rvget::test {
namespace {

std::string number(std::uint64_t n) { return std::to_string(n); }

std::string leases(const std::vector<std::uint64_t>& ids) {
    std::string text;
    for (const auto id : ids) text += (text.empty() ? "" : ",") + number(id);
    return text;
}

struct describer {
    std::string operator()(const wire::hello&) const { return "hello"; }
    std::string operator()(const wire::acquire& m) const {
        auto text = "acquire " + number(m.offset) + "+" +
                    (m.length == wire::whole_length ? "all" : number(m.length));
        if (m.offer)
            text += ", offers lane " + number(m.offer->generation);
        else
            text += ", no offer: " + std::string(to_string(m.no_offer_reason));
        if (m.force) text += ", forced";
        if (!m.detaches.empty()) text += ", ends leases " + leases(m.detaches);
        return text;
    }
    std::string operator()(const wire::acquire_reply& m) const {
        constexpr const char* names[] = {"rdma",         "inline",     "chunked", "not found",
                                         "out of range", "not pinned", "busy",    "refused"};
        auto text = "acquire answered " + std::string(names[static_cast<int>(m.answer)]) + " (" +
                    std::string(to_string(m.why)) + ")";
        if (m.lease != 0)
            text += ", lease " + number(m.lease) + " for " + number(m.duration_ms) + " ms";
        if (m.lane_generation) text += ", owner's end of lane " + number(*m.lane_generation);
        return text;
    }
    std::string operator()(const wire::detach& m) const {
        return "detach of leases " + leases(m.leases);
    }
    std::string operator()(const wire::renew& m) const {
        return "renew lease " + number(m.lease) +
               (m.offer ? " on lane " + number(m.offer->generation) : "");
    }
    std::string operator()(const wire::renew_reply& m) const {
        if (!m.granted) return "renewal refused";
        return "renewed for " + number(m.duration_ms) + " ms" + (m.descriptor ? ", new key" : "");
    }
    std::string operator()(const wire::pull& m) const {
        return "pull " + number(m.offset) + "+" + number(m.bytes) + " of lease " + number(m.lease);
    }
    std::string operator()(const wire::chunk& m) const {
        return m.status == wire::chunk_status::ok ? "chunk" : "chunk refused";
    }
    std::string operator()(const wire::metadata_request&) const { return "metadata request"; }
    std::string operator()(const wire::metadata_reply&) const { return "metadata"; }
    std::string operator()(const wire::reference& m) const {
        return m.change == wire::reference_change::add ? "add reference" : "release reference";
    }
    std::string operator()(const wire::reference_reply&) const { return "reference changed"; }
    std::string operator()(const wire::lane_down& m) const {
        return "lane " + number(m.generation) + " down (" + std::string(to_string(m.why)) + ")";
    }
    std::string operator()(const wire::goodbye& m) const { return "goodbye: " + m.why; }
    std::string operator()(const wire::ping&) const { return "ping"; }
    std::string operator()(const wire::pong&) const { return "pong"; }
};

}  // namespace

std::string describe_frame(const wire::frame& f) {
    return std::visit(describer{}, f.body) + (f.id != 0 ? " (request " + number(f.id) + ")" : "");
}

}  // namespace rvget::test
