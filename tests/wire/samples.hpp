#pragma once
// Values of every wire type: fixed samples, which the golden bytes and the fuzzers' seeds share,
// and random ones.

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/seeded_random.hpp"
#include "wire/descriptor.hpp"
#include "wire/frames.hpp"
#include "wire/secret_messages.hpp"

namespace rvget::wire::test {

inline std::vector<std::byte> from_hex(std::string_view text) {
    std::vector<std::byte> out;
    std::string digits;
    for (const char c : text) {
        if (c != ' ') {
            digits += c;
        }
        if (digits.size() == 2) {
            out.push_back(static_cast<std::byte>(std::stoul(digits, nullptr, 16)));
            digits.clear();
        }
    }
    return out;
}

inline std::string to_hex(std::span<const std::byte> bytes) {
    constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (const std::byte b : bytes) {
        out += digits[std::to_integer<unsigned>(b) >> 4];
        out += digits[std::to_integer<unsigned>(b) & 0xf];
    }
    return out;
}

/// One of each, in the order of the exchange.
inline std::vector<secret_message> secret_samples() {
    std::array<std::byte, 32> counting{};
    for (std::size_t i = 0; i < counting.size(); ++i) counting[i] = static_cast<std::byte>(i);
    const node_id id{0x1122334455667788};
    return {secret_hello{.random = counting}, secret_challenge{counting},
            secret_proof{id, counting}, secret_answer{id, counting, counting}};
}

inline queue_pair_facts sample_facts() {
    queue_pair_facts f;
    f.number = 0x123456;
    f.starting_psn = 0xabcdef;
    f.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2};
    f.lid = 7;
    f.path_mtu = 1024;
    f.read_depth = 16;
    return f;
}

inline descriptor sample_descriptor() {
    descriptor d;
    d.address = 0x7f0011223344'5566;
    d.length = 0x100000;
    d.lease = 0x0102030405060708;
    d.duration_ms = 30000;
    d.generation = 3;
    d.mode = lease_mode::window;
    d.keys = {{1, 0xdeadbeef}};
    return d;
}

struct golden_frame {
    const char* name;
    wire::frame frame;
    const char* bytes;  ///< put together from docs/wire.md, not by encode()
};

inline std::vector<golden_frame> golden_frames() {
    const auto descriptor = from_hex("0a0b0c");
    return {
        {"hello",
         {0, hello{1, 2, node_id{0x1122334455667788}}},
         "01 00 0000000000000000 0100 0200 8877665544332211"},
        {"acquire, whole slot",
         {0x0102030405060708, acquire{.slot = 0xa1a2a3a4a5a6a7a8, .deadline_ms = 30000}},
         "02 00 0807060504030201 a8a7a6a5a4a3a2a1 0000000000000000 ffffffffffffffff 30750000 00"},
        {"acquire, all fields",
         {9, acquire{.slot = 1,
                     .offset = 2,
                     .length = 3,
                     .deadline_ms = 4,
                     .force = true,
                     .offer = lane_offer{5, 1, sample_facts()},
                     .no_offer_reason = reason::no_route,
                     .detaches = {6, 7}}},
         "02 00 0900000000000000 0100000000000000 0200000000000000 0300000000000000 04000000 01"
         "01 2100 05000000 0100 563412 efcdab 00000000000000000000ffff0a000002 0700 0004 10"
         "02 0100 21 03 1000 0600000000000000 0700000000000000"},
        {"acquire, offer on a lane in use",
         {9, acquire{.slot = 1, .length = 3, .offer = lane_offer{5, 1, std::nullopt}}},
         "02 00 0900000000000000 0100000000000000 0000000000000000 0300000000000000 00000000 00"
         "01 0600 05000000 0100"},
        {"acquire, with a checksum",
         {9, acquire{.slot = 1, .length = 3, .checksum = checksum::crc32c}},
         "02 00 0900000000000000 0100000000000000 0000000000000000 0300000000000000 00000000 00"
         "80 0100 01"},
        {"acquire_reply, with a checksum",
         {10, acquire_reply{.answer = answer::not_found, .crc32c = 0xc0ffee01}},
         "03 00 0a00000000000000 03 00 0000000000000000 0000000000000000 0000000000000000"
         "00000000 00000000 80 0400 01eeffc0"},
        {"acquire_reply, bare",
         {10, acquire_reply{.answer = answer::not_found}},
         "03 00 0a00000000000000 03 00 0000000000000000 0000000000000000 0000000000000000"
         "00000000 00000000"},
        {"acquire_reply, all fields",
         {10, acquire_reply{.answer = answer::rdma,
                            .why = reason::ok,
                            .slot_bytes = 0x1000,
                            .range_bytes = 0x800,
                            .lease = 0x99,
                            .duration_ms = 30000,
                            .retry_after_ms = 5,
                            .descriptor = descriptor,
                            .lane_generation = 2,
                            .lane_facts = sample_facts(),
                            .detail = "why"}},
         "03 00 0a00000000000000 00 00 0010000000000000 0008000000000000 9900000000000000"
         "30750000 05000000 01 0300 0a0b0c 02 0400 02000000"
         "03 1b00 563412 efcdab 00000000000000000000ffff0a000002 0700 0004 10 04 0300 776879"},
        {"detach",
         {0, detach{{1, 0x8000000000000000}}},
         "04 00 0000000000000000 0200 0100000000000000 0000000000000080"},
        {"renew", {11, renew{0x77}}, "05 00 0b00000000000000 7700000000000000"},
        {"renew_with_offer",
         {11, renew{0x77, lane_offer{7, 1, std::nullopt}}},
         "05 00 0b00000000000000 7700000000000000 01 0600 07000000 0100"},
        {"renew_reply",
         {11, renew_reply{true, 30000, descriptor}},
         "06 00 0b00000000000000 01 30750000 01 0300 0a0b0c"},
        {"pull",
         {12, pull{0x77, 0x100000, 0x40000}},
         "07 00 0c00000000000000 7700000000000000 0000100000000000 00000400"},
        {"chunk", {12, chunk{chunk_status::lease_unknown}}, "08 00 0c00000000000000 01"},
        {"metadata_request",
         {13, metadata_request{0x55}},
         "09 00 0d00000000000000 5500000000000000"},
        {"metadata_reply",
         {13, metadata_reply{true, 0x123456789a, 2, 3, true}},
         "0a 00 0d00000000000000 03 9a78563412000000 02000000 03000000"},
        {"reference",
         {14, reference{0x55, reference_change::release}},
         "0b 00 0e00000000000000 5500000000000000 01"},
        {"reference_reply", {14, reference_reply{true, 4}}, "0c 00 0e00000000000000 01 04000000"},
        {"lane_down", {0, lane_down{3, reason::fenced}}, "0d 00 0000000000000000 03000000 06"},
        {"goodbye", {0, goodbye{"draining"}}, "0e 00 0000000000000000 01 0800 647261696e696e67"},
        {"ping", {15, ping{}}, "0f 00 0f00000000000000"},
        {"ping_with_offer",
         {15, ping{lane_offer{7, 1, std::nullopt}}},
         "0f 00 0f00000000000000 80 0600 07000000 0100"},
        {"ping_with_offer, by RDMA-CM",
         {15, ping{lane_offer{7, backend_cm, sample_facts()}}},
         "0f 00 0f00000000000000 80 2100 07000000 0200"
         "563412 efcdab 00000000000000000000ffff0a000002 0700 0004 10"},
        {"pong", {15, pong{}}, "10 00 0f00000000000000"},
        {"pong_of_lane",
         {15, pong{.lane_generation = 2, .lane_facts = sample_facts()}},
         "10 00 0f00000000000000 80 0400 02000000"
         "81 1b00 563412 efcdab 00000000000000000000ffff0a000002 0700 0004 10"},
        {"pong_of_lane, where to connect",
         {15, pong{.lane_generation = 2,
                   .lane_facts = sample_facts(),
                   .connect_to = connect_point{.address = sample_facts().gid,
                                               .port = 18515,
                                               .nonce = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                                         14, 15, 16}}}},
         "10 00 0f00000000000000 80 0400 02000000"
         "81 1b00 563412 efcdab 00000000000000000000ffff0a000002 0700 0004 10"
         "84 2200 00000000000000000000ffff0a000002 5348 0102030405060708090a0b0c0d0e0f10"},
        {"pong_of_no_lane",
         {15, pong{.why = reason::no_lane, .detail = "why"}},
         "10 00 0f00000000000000 82 0100 0a 83 0300 776879"},
    };
}

/// Random values of the wire types, within the preconditions of encode().
class random_values {
public:
    explicit random_values(rvget::test::seeded_random& random) : random_(random) {}

    std::vector<rail_key> keys() {
        std::vector<rail_key> out;
        const std::uint64_t count = 1 + random_.below(15);
        std::uint8_t rail = random_.number<std::uint8_t>();
        for (std::uint64_t i = 0; i < count; ++i) {
            out.push_back({rail, number<std::uint32_t>()});
            rail = static_cast<std::uint8_t>(rail + 1 + random_.below(17));  // 14 x 17 < 256
        }
        return out;
    }

    wire::descriptor descriptor() {
        wire::descriptor d;
        d.address = number<std::uint64_t>();
        d.length = number<std::uint64_t>();
        d.lease = number<std::uint64_t>();
        d.duration_ms = number<std::uint32_t>();
        d.generation = number<std::uint32_t>();
        d.mode = static_cast<lease_mode>(random_.below(3));
        d.keys = keys();
        d.crc32c = maybe([this] { return number<std::uint32_t>(); });
        return d;
    }

    wire::frame frame() {
        return frame_of(random_.below(std::variant_size_v<body>),
                        std::make_index_sequence<std::variant_size_v<body>>());
    }

private:
    template <class T>
    T number() {
        return random_.number<T>();
    }
    template <class F>
    auto maybe(F make) -> std::optional<std::invoke_result_t<F>> {
        return random_.coin() ? std::optional(make()) : std::nullopt;
    }
    rvget::reason reason() {
        rvget::reason r{};
        do {
            r = static_cast<rvget::reason>(random_.below(256));
        } while (to_string(r) == "unknown");
        return r;
    }
    std::string text() {
        std::string out(random_.below(8) == 0 ? max_text_bytes : random_.below(40), '\0');
        for (char& c : out) {
            c = static_cast<char>(random_.below(256));
        }
        return out;
    }
    std::vector<std::byte> bytes() {
        std::vector<std::byte> out(random_.below(130));
        for (std::byte& b : out) {
            b = static_cast<std::byte>(random_.below(256));
        }
        return out;
    }
    std::vector<std::uint64_t> leases() {
        const bool most = random_.below(64) == 0;
        std::vector<std::uint64_t> out(most ? max_leases : random_.below(20));
        for (std::uint64_t& lease : out) {
            lease = number<std::uint64_t>();
        }
        return out;
    }
    queue_pair_facts facts() {
        queue_pair_facts f;
        f.number = number<std::uint32_t>() >> 8;
        f.starting_psn = number<std::uint32_t>() >> 8;
        for (std::uint8_t& b : f.gid) {
            b = number<std::uint8_t>();
        }
        f.lid = number<std::uint16_t>();
        f.path_mtu = 256U << random_.below(5);
        f.read_depth = number<std::uint8_t>();
        return f;
    }

    void fill(hello& v) {
        v = {number<std::uint16_t>(), number<std::uint16_t>(), node_id{number<std::uint64_t>()}};
    }
    void fill(acquire& v) {
        v.slot = number<std::uint64_t>();
        v.offset = number<std::uint64_t>();
        v.length = number<std::uint64_t>();
        v.deadline_ms = number<std::uint32_t>();
        v.force = random_.coin();
        v.offer = maybe([this] { return offer(); });
        v.no_offer_reason = reason();
        v.detaches = leases();
        v.checksum = random_.coin() ? checksum::crc32c : checksum::none;
    }
    void fill(acquire_reply& v) {
        v.answer = static_cast<answer>(random_.below(8));
        v.why = reason();
        v.slot_bytes = number<std::uint64_t>();
        v.range_bytes = number<std::uint64_t>();
        v.lease = number<std::uint64_t>();
        v.duration_ms = number<std::uint32_t>();
        v.retry_after_ms = number<std::uint32_t>();
        v.descriptor = maybe([this] { return bytes(); });
        v.lane_generation = maybe([this] { return number<std::uint32_t>(); });
        v.lane_facts = maybe([this] { return facts(); });
        v.detail = text();
        v.crc32c = maybe([this] { return number<std::uint32_t>(); });
    }
    void fill(detach& v) { v.leases = leases(); }
    lane_offer offer() {
        return {number<std::uint32_t>(), number<std::uint16_t>(),
                maybe([this] { return facts(); })};
    }
    void fill(renew& v) {
        v = {number<std::uint64_t>(), maybe([this] { return offer(); })};
    }
    void fill(renew_reply& v) {
        v = {random_.coin(), number<std::uint32_t>(), maybe([this] { return bytes(); }),
             maybe([this] { return number<std::uint32_t>(); }), maybe([this] { return facts(); })};
    }
    void fill(pull& v) {
        v = {number<std::uint64_t>(), number<std::uint64_t>(),
             static_cast<std::uint32_t>(random_.below(max_payload_bytes + 1))};
    }
    void fill(chunk& v) { v.status = static_cast<chunk_status>(random_.below(3)); }
    void fill(metadata_request& v) { v.slot = number<std::uint64_t>(); }
    void fill(metadata_reply& v) {
        v = {random_.coin(), number<std::uint64_t>(), number<std::uint32_t>(),
             number<std::uint32_t>(), random_.coin()};
    }
    void fill(reference& v) {
        v = {number<std::uint64_t>(), static_cast<reference_change>(random_.below(2))};
    }
    void fill(reference_reply& v) { v = {random_.coin(), number<std::uint32_t>()}; }
    void fill(lane_down& v) { v = {number<std::uint32_t>(), reason()}; }
    void fill(goodbye& v) { v.why = text(); }
    void fill(ping& v) {
        v.offer = maybe([this] { return offer(); });
    }
    void fill(pong& v) {
        v = {maybe([this] { return number<std::uint32_t>(); }), maybe([this] { return facts(); }),
             reason(), text(), maybe([this] { return point(); })};
    }
    connect_point point() {
        connect_point p;
        for (auto& octet : p.address) octet = number<std::uint8_t>();
        p.port = number<std::uint16_t>();
        for (auto& octet : p.nonce) octet = number<std::uint8_t>();
        return p;
    }

    template <std::size_t... Index>
    wire::frame frame_of(std::size_t which, std::index_sequence<Index...>) {
        wire::frame f;
        f.id = number<std::uint64_t>();
        ((Index == which ? fill(f.body.emplace<Index>()) : void()), ...);
        return f;
    }

    rvget::test::seeded_random& random_;
};

}  // namespace rvget::wire::test
