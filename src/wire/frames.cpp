#include "wire/frames.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/bytes.hpp"

// Each type's fields are described once, by `fields(codec, value)`, and an encoder and a decoder
// walk that description; so the two directions cannot drift apart. Optional fields are described in
// the order of their tags, which is the order on the wire.

namespace rvget::wire {
namespace {

constexpr std::uint8_t skippable_bit = 0x80;  // of a tag: who does not know it may ignore it

// The type's byte is the alternative's index in `body` plus 1.
constexpr std::array<std::string_view, std::variant_size_v<body>> type_names{
    "hello", "acquire",  "acquire_reply",  "detach",    "renew",           "renew_reply", "pull",
    "chunk", "metadata", "metadata_reply", "reference", "reference_reply", "lane_down",   "goodbye",
    "ping",  "pong"};

// Which enumerators exist. A peer of a newer version uses new ones only with versions that know
// them (hello), so an unknown one is a broken peer.
bool is_known(reason v) noexcept { return to_string(v) != "unknown"; }
bool is_known(checksum v) noexcept { return v <= checksum::crc32c; }
bool is_known(answer v) noexcept { return v <= answer::refused; }
bool is_known(chunk_status v) noexcept { return v <= chunk_status::out_of_range; }
bool is_known(reference_change v) noexcept { return v <= reference_change::release; }

bool is_path_mtu(std::uint32_t bytes) noexcept {
    return bytes == 256 || bytes == 512 || bytes == 1024 || bytes == 2048 || bytes == 4096;
}

/// The longest beginning of at most max_text_bytes that ends between characters of UTF-8.
std::string_view cut(std::string_view text) noexcept {
    if (text.size() <= max_text_bytes) {
        return text;
    }
    std::size_t end = max_text_bytes;
    while (end > max_text_bytes - 4 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
        --end;
    }
    return text.substr(0, end);
}

class encoder {
public:
    static constexpr bool decoding = false;

    explicit encoder(byte_writer& out) : out_(out) {}

    void number(std::uint8_t v) { out_.u8(v); }
    void number(std::uint16_t v) { out_.u16(v); }
    void number(std::uint32_t v) { out_.u32(v); }
    void number(std::uint64_t v) { out_.u64(v); }
    void number24(std::uint32_t v) {
        require(v >> 24 == 0, "a number of more than 24 bits");
        out_.u24(v);
    }
    void number_up_to(std::uint32_t v, std::size_t limit) {
        require(v <= limit, "a number beyond its limit");
        out_.u32(v);
    }
    void path_mtu(std::uint32_t v) {
        require(is_path_mtu(v), "no path MTU");
        out_.u16(static_cast<std::uint16_t>(v));
    }
    void octets(std::span<const std::uint8_t> v) { out_.bytes(std::as_bytes(v)); }

    template <class... Bool>
    void flags(Bool... flag) {
        unsigned bits = 0;
        unsigned mask = 1;
        ((bits |= flag ? mask : 0, mask <<= 1), ...);
        out_.u8(static_cast<std::uint8_t>(bits));
    }

    template <class Enum>
    void enumeration(Enum v) {
        require(is_known(v), "an unknown enumerator");
        out_.u8(static_cast<std::uint8_t>(v));
    }

    void counted_leases(const std::vector<std::uint64_t>& leases) {
        require(leases.size() <= max_leases, "too many leases");
        out_.u16(static_cast<std::uint16_t>(leases.size()));
        rest(leases);
    }

    // What fills a section to its end.
    void rest(const std::vector<std::uint64_t>& leases) {
        require(leases.size() <= max_leases, "too many leases");
        for (const std::uint64_t lease : leases) {
            out_.u64(lease);
        }
    }
    void rest(const std::vector<std::byte>& v) { out_.bytes(v); }
    void rest(const std::string& text) { out_.text(cut(text)); }
    template <class T>
    void rest(const std::optional<T>& v) {
        if (v) {
            fields(*this, *v);
        }
    }

    template <class T>
    void optional(std::uint8_t tag, const std::optional<T>& v) {
        if (v) {
            section(tag, *v);
        }
    }
    template <class T>
    void unless_default(std::uint8_t tag, const T& v) {
        if (v != T{}) {
            section(tag, v);
        }
    }

private:
    static void require(bool holds, const char* what) {
        if (!holds) {
            throw std::invalid_argument(std::string("encode: ") + what);
        }
    }

    template <class T>
    void section(std::uint8_t tag, const T& v) {
        out_.u8(tag);
        const std::size_t length_at = out_.size();
        out_.u16(0);
        fields(*this, v);
        const std::size_t length = out_.size() - length_at - 2;
        require(length <= 0xffff, "an optional field of more than 65535 bytes");
        out_.patch_u16(length_at, static_cast<std::uint16_t>(length));
    }

    byte_writer& out_;
};

class decoder {
public:
    static constexpr bool decoding = true;

    explicit decoder(byte_reader& in) : in_(in) {}

    void number(std::uint8_t& v) { v = in_.u8(); }
    void number(std::uint16_t& v) { v = in_.u16(); }
    void number(std::uint32_t& v) { v = in_.u32(); }
    void number(std::uint64_t& v) { v = in_.u64(); }
    void number24(std::uint32_t& v) { v = in_.u24(); }
    void number_up_to(std::uint32_t& v, std::size_t limit) {
        const std::size_t at = in_.offset();
        v = in_.u32();
        if (v > limit) {
            in_.fail_at(at, std::to_string(v) + " is beyond the limit " + std::to_string(limit));
        }
    }
    void path_mtu(std::uint32_t& v) {
        const std::size_t at = in_.offset();
        v = in_.u16();
        if (!is_path_mtu(v)) {
            in_.fail_at(at, std::to_string(v) + " is no path MTU");
        }
    }
    void octets(std::span<std::uint8_t> v) {
        const auto taken = in_.bytes(v.size());
        std::ranges::copy(taken, std::as_writable_bytes(v).begin());
    }

    template <class... Bool>
    void flags(Bool&... flag) {
        const std::size_t at = in_.offset();
        unsigned bits = in_.u8();
        ((flag = (bits & 1) != 0, bits >>= 1), ...);
        if (bits != 0) {
            in_.fail_at(at, "a flag is not known");
        }
    }

    template <class Enum>
    void enumeration(Enum& v) {
        const std::size_t at = in_.offset();
        v = static_cast<Enum>(in_.u8());
        if (!is_known(v)) {
            in_.fail_at(at, "value " + std::to_string(static_cast<unsigned>(v)) + " is not known");
        }
    }

    void counted_leases(std::vector<std::uint64_t>& leases) {
        const std::size_t at = in_.offset();
        const std::size_t count = in_.u16();
        if (count > in_.remaining() / 8) {
            in_.fail_at(at, std::to_string(count) + " leases are announced, " +
                                std::to_string(in_.remaining()) + " bytes are left");
        }
        read_leases(leases, count, at);
    }

    void rest(std::vector<std::uint64_t>& leases) {
        if (in_.remaining() % 8 != 0) {
            in_.fail("the leases are not whole");
        }
        read_leases(leases, in_.remaining() / 8, in_.offset());
    }
    void rest(std::vector<std::byte>& v) {
        const auto taken = in_.bytes(in_.remaining());
        v.assign(taken.begin(), taken.end());
    }
    void rest(std::string& text) {
        if (in_.remaining() > max_text_bytes) {
            in_.fail("a text of " + std::to_string(in_.remaining()) + " bytes is too long");
        }
        const auto taken = in_.bytes(in_.remaining());
        text.assign(reinterpret_cast<const char*>(taken.data()), taken.size());
    }
    template <class T>
    void rest(std::optional<T>& v) {
        if (in_.remaining() > 0) {
            fields(*this, v.emplace());
        }
    }

    template <class T>
    void optional(std::uint8_t tag, std::optional<T>& v) {
        if (present(tag)) {
            section(v.emplace());
        }
    }
    template <class T>
    void unless_default(std::uint8_t tag, T& v) {
        if (present(tag)) {
            const std::size_t at = in_.offset();
            section(v);
            if (v == T{}) {
                in_.fail_at(at, "optional field " + std::to_string(tag) + " says its default");
            }
        }
    }

    /// What is left after the known fields: tags to skip, growing, and nothing else.
    void finish() {
        int last = -1;
        while (in_.remaining() > 0) {
            const std::size_t at = in_.offset();
            const std::uint8_t tag = in_.u8();
            if ((tag & skippable_bit) == 0) {
                in_.fail_at(at, "optional field " + std::to_string(tag) +
                                    " is unknown, repeated or out of order");
            } else if (tag <= last) {
                in_.fail_at(
                    at, "optional field " + std::to_string(tag) + " is repeated or out of order");
            }
            last = tag;
            const std::size_t length = in_.u16();
            in_.bytes(length);
        }
    }

private:
    [[nodiscard]] bool present(std::uint8_t tag) const {
        return in_.remaining() > 0 && in_.peek_u8() == tag;
    }

    template <class T>
    void section(T& v) {
        in_.u8();
        const std::size_t length = in_.u16();
        byte_reader part = in_.part(length);
        decoder nested(part);
        fields(nested, v);
        in_.finish_part(part);
    }

    /// `count` is backed by bytes that are there: nothing is allocated on a peer's word.
    void read_leases(std::vector<std::uint64_t>& leases, std::size_t count, std::size_t at) {
        if (count > max_leases) {
            in_.fail_at(at, std::to_string(count) + " leases are too many");
        }
        if (!in_.ok()) {
            return;
        }
        leases.resize(count);
        for (std::uint64_t& lease : leases) {
            lease = in_.u64();
        }
    }

    byte_reader& in_;
};

template <class Codec, class T>
using subject = std::conditional_t<Codec::decoding, T, const T>;

// Values of optional fields.

template <class C>
void fields(C& c, subject<C, std::uint32_t>& v) {
    c.number(v);
}
template <class C>
void fields(C& c, subject<C, reason>& v) {
    c.enumeration(v);
}
template <class C>
void fields(C& c, subject<C, checksum>& v) {
    c.enumeration(v);
}
template <class C>
void fields(C& c, subject<C, std::string>& v) {
    c.rest(v);
}
template <class C>
void fields(C& c, subject<C, std::vector<std::byte>>& v) {
    c.rest(v);
}
template <class C>
void fields(C& c, subject<C, std::vector<std::uint64_t>>& v) {
    c.rest(v);
}
template <class C>
void fields(C& c, subject<C, queue_pair_facts>& v) {
    c.number24(v.number);
    c.number24(v.starting_psn);
    c.octets(v.gid);
    c.number(v.lid);
    c.path_mtu(v.path_mtu);
    c.number(v.read_depth);
}
template <class C>
void fields(C& c, subject<C, lane_offer>& v) {
    c.number(v.generation);
    c.number(v.backends);
    c.rest(v.facts);
}
template <class C>
void fields(C& c, subject<C, connect_point>& v) {
    c.octets(v.address);
    c.number(v.port);
    c.octets(v.nonce);
}

// Bodies.

template <class C>
void fields(C& c, subject<C, hello>& v) {
    c.number(v.version_oldest);
    c.number(v.version_newest);
    c.number(v.node.value);
}
template <class C>
void fields(C& c, subject<C, acquire>& v) {
    c.number(v.slot);
    c.number(v.offset);
    c.number(v.length);
    c.number(v.deadline_ms);
    c.flags(v.force);
    c.optional(1, v.offer);
    c.unless_default(2, v.no_offer_reason);
    c.unless_default(3, v.detaches);
    c.unless_default(0x80, v.checksum);
}
template <class C>
void fields(C& c, subject<C, acquire_reply>& v) {
    c.enumeration(v.answer);
    c.enumeration(v.why);
    c.number(v.slot_bytes);
    c.number(v.range_bytes);
    c.number(v.lease);
    c.number(v.duration_ms);
    c.number(v.retry_after_ms);
    c.optional(1, v.descriptor);
    c.optional(2, v.lane_generation);
    c.optional(3, v.lane_facts);
    c.unless_default(4, v.detail);
    c.optional(0x80, v.crc32c);
}
template <class C>
void fields(C& c, subject<C, detach>& v) {
    c.counted_leases(v.leases);
}
template <class C>
void fields(C& c, subject<C, renew>& v) {
    c.number(v.lease);
    c.optional(1, v.offer);
}
template <class C>
void fields(C& c, subject<C, renew_reply>& v) {
    c.flags(v.granted);
    c.number(v.duration_ms);
    c.optional(1, v.descriptor);
    c.optional(2, v.lane_generation);
    c.optional(3, v.lane_facts);
}
template <class C>
void fields(C& c, subject<C, pull>& v) {
    c.number(v.lease);
    c.number(v.offset);
    c.number_up_to(v.bytes, max_payload_bytes);
}
template <class C>
void fields(C& c, subject<C, chunk>& v) {
    c.enumeration(v.status);
}
template <class C>
void fields(C& c, subject<C, metadata_request>& v) {
    c.number(v.slot);
}
template <class C>
void fields(C& c, subject<C, metadata_reply>& v) {
    c.flags(v.found, v.pinned);
    c.number(v.bytes);
    c.number(v.references);
    c.number(v.leases);
}
template <class C>
void fields(C& c, subject<C, reference>& v) {
    c.number(v.slot);
    c.enumeration(v.change);
}
template <class C>
void fields(C& c, subject<C, reference_reply>& v) {
    c.flags(v.found);
    c.number(v.references);
}
template <class C>
void fields(C& c, subject<C, lane_down>& v) {
    c.number(v.generation);
    c.enumeration(v.why);
}
template <class C>
void fields(C& c, subject<C, goodbye>& v) {
    c.unless_default(1, v.why);
}
template <class C>
void fields(C& c, subject<C, ping>& v) {
    c.optional(0x80, v.offer);
}
template <class C>
void fields(C& c, subject<C, pong>& v) {
    c.optional(0x80, v.lane_generation);
    c.optional(0x81, v.lane_facts);
    c.unless_default(0x82, v.why);
    c.unless_default(0x83, v.detail);
    c.optional(0x84, v.connect_to);
}

template <std::size_t Index>
void decode_body(decoder& in, body& to) {
    fields(in, to.emplace<Index>());
}

using body_decoder = void (*)(decoder&, body&);
template <std::size_t... Index>
constexpr std::array<body_decoder, sizeof...(Index)> body_decoders(std::index_sequence<Index...>) {
    return {&decode_body<Index>...};
}

failure refusal(std::string_view subject, std::string_view error) {
    return {connection_errc::protocol, std::string(subject).append(": ").append(error)};
}

}  // namespace

std::array<std::byte, prefix_bytes> encode_prefix(frame_prefix p) {
    byte_writer out(prefix_bytes);
    out.u32(p.head_bytes);
    out.u32(p.payload_bytes);
    std::array<std::byte, prefix_bytes> bytes{};
    std::ranges::copy(std::move(out).take(), bytes.begin());
    return bytes;
}

result<frame_prefix> decode_prefix(std::span<const std::byte, prefix_bytes> bytes) {
    byte_reader in(bytes);
    frame_prefix p;
    p.head_bytes = in.u32();
    if (p.head_bytes == 0 || p.head_bytes > max_head_bytes) {
        in.fail_at(0, "a head of " + std::to_string(p.head_bytes) +
                          " bytes (not this protocol, or a TLS peer on a plain port?)");
    }
    p.payload_bytes = in.u32();
    if (p.payload_bytes > max_payload_bytes) {
        in.fail_at(4, "a payload of " + std::to_string(p.payload_bytes) + " bytes");
    }
    if (!in.ok()) {
        return refusal("frame prefix", in.error());
    }
    return p;
}

std::vector<std::byte> encode(const frame& f) {
    byte_writer out(128);  // holds all but long detaches and texts: one allocation a frame
    out.u8(static_cast<std::uint8_t>(f.body.index() + 1));
    out.u8(0);
    out.u64(f.id);
    encoder to(out);
    std::visit([&to](const auto& value) { fields(to, value); }, f.body);
    if (out.size() > max_head_bytes) {
        throw std::invalid_argument("encode: a head of " + std::to_string(out.size()) + " bytes");
    }
    return std::move(out).take();
}

std::optional<std::uint16_t> common_version(const hello& theirs) noexcept {
    const auto newest = std::min(theirs.version_newest, protocol_version);
    if (newest < std::max(theirs.version_oldest, protocol_version_oldest)) {
        return std::nullopt;
    }
    return newest;
}

result<frame> decode_frame(std::span<const std::byte> head) {
    static constexpr auto decoders =
        body_decoders(std::make_index_sequence<std::variant_size_v<body>>());
    byte_reader in(head);
    if (head.size() > max_head_bytes) {
        in.fail("a head of " + std::to_string(head.size()) + " bytes");
    }
    const std::size_t index = static_cast<std::size_t>(in.u8()) - 1;
    if (index >= decoders.size()) {
        in.fail_at(0, "type " + std::to_string(index + 1) + " is not known");
    }
    if (in.u8() != 0) {
        in.fail_at(1, "the reserved byte is not zero");
    }
    frame f;
    f.id = in.u64();
    if (!in.ok()) {
        return refusal("frame", in.error());
    }
    decoder from(in);
    decoders[index](from, f.body);
    from.finish();
    if (!in.ok()) {
        return refusal(type_names[index], in.error());
    }
    return f;
}

}  // namespace rvget::wire
