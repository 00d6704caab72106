#include "softmlx5/core/work_request.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "softmlx5/core/bytes.hpp"

namespace softmlx5 {

namespace {

constexpr std::size_t unit = 16;
constexpr std::uint32_t inline_flag = 0x80000000;

std::string hex(std::uint64_t value) {
    std::array<char, 20> text{};
    std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
    return text.data();
}

/// Reads a request unit by unit, starting over at the ring's base where it ends.
class reader {
public:
    reader(const send_ring& ring, std::uint16_t index, std::uint32_t queue_pair, violation_log& log)
        : ring_(ring), at_(ring.at(index)), queue_pair_(queue_pair), index_(index), log_(log) {}

    std::array<std::byte, unit> next() noexcept {
        std::array<std::byte, unit> bytes;
        std::copy_n(at_, unit, bytes.begin());
        at_ += unit;
        if (at_ == ring_.base + ring_.blocks * send_ring::block) at_ = ring_.base;
        return bytes;
    }
    bool wrong(std::string_view rule, const std::string& text) {
        log_.report(rule, "queue pair " + hex(queue_pair_) + ", request at block " +
                              std::to_string(index_) + ": " + text);
        return false;
    }

private:
    const send_ring& ring_;
    const std::byte* at_;
    std::uint32_t queue_pair_;
    std::uint16_t index_;
    violation_log& log_;
};

bool all_zero(const std::byte* from, std::size_t count) noexcept {
    return std::all_of(from, from + count, [](std::byte b) { return b == std::byte{0}; });
}

bool known(std::uint8_t code) noexcept {
    constexpr std::array codes{
        opcode::nop,       opcode::send_invalidate, opcode::write, opcode::write_immediate,
        opcode::send,      opcode::send_immediate,  opcode::read,  opcode::compare_swap,
        opcode::fetch_add, opcode::key_update};
    return std::find(codes.begin(), codes.end(), static_cast<opcode>(code)) != codes.end();
}

bool read_remote(reader& in, work_request& out) {
    const auto bytes = in.next();
    out.remote_address = load64(bytes.data());
    out.remote_key = load32(bytes.data() + 8);
    return load32(bytes.data() + 12) == 0 ||
           in.wrong("wqe.reserved", "the remote address segment's last word is not zero");
}

/// Inline bytes: the count, then the bytes, up to the end of a unit.
bool read_inline(reader& in, work_request& out, std::array<std::byte, unit> first,
                 std::size_t units) {
    const std::size_t count = load32(first.data()) & ~inline_flag;
    if (count == 0 || (count + 4 + unit - 1) / unit != units) {
        return in.wrong("wqe.length", std::to_string(count) + " inline bytes in " +
                                          std::to_string(units) + " units of 16");
    }
    out.inlined = true;
    out.inline_bytes.reserve(units * unit);
    out.inline_bytes.insert(out.inline_bytes.end(), first.begin() + 4, first.end());
    for (std::size_t i = 1; i < units; ++i) {
        const auto more = in.next();
        out.inline_bytes.insert(out.inline_bytes.end(), more.begin(), more.end());
    }
    out.inline_bytes.resize(count);
    return true;
}

bool read_data(reader& in, work_request& out, std::size_t units) {
    for (std::size_t i = 0; i < units; ++i) {
        const auto bytes = in.next();
        const auto count = load32(bytes.data());
        if ((count & inline_flag) != 0) {
            if (i != 0) return in.wrong("wqe.inline", "an inline segment after a pointer");
            if (out.reads()) return in.wrong("wqe.inline", "inline data where a read answers");
            return read_inline(in, out, bytes, units);
        }
        if (count == 0) {
            return in.wrong("wqe.zero_length", "a data segment of length 0 stands for 2 GiB");
        }
        out.pieces.push_back({.address = load64(bytes.data() + 8),
                              .length = count,
                              .key = load32(bytes.data() + 4)});
    }
    return true;
}

bool read_atomic(reader& in, work_request& out, std::size_t units) {
    if (units != 4)
        return in.wrong("wqe.length", "an atomic of " + std::to_string(units) + " units");
    if (!read_remote(in, out)) return false;
    const auto bytes = in.next();
    out.swap_or_add = load64(bytes.data());
    // A fetch-and-add leaves the compare word as it was.
    out.compare = load64(bytes.data() + 8);
    if (!read_data(in, out, 1)) return false;
    return out.pieces.front().length == 8 ||
           in.wrong("wqe.length", "an atomic that answers into " +
                                      std::to_string(out.pieces.front().length) + " bytes");
}

/// Masks of the key fields that a bind and an invalidation change, no more and no fewer.
constexpr std::uint64_t mask_length = 1 << 0;
constexpr std::uint64_t mask_start = 1 << 6;
constexpr std::uint64_t mask_variant = 1 << 13;
constexpr std::uint64_t mask_queue_pair = 1 << 14;
constexpr std::uint64_t mask_rights = std::uint64_t{0xf} << 18;
constexpr std::uint64_t mask_free = 1 << 29;
constexpr std::uint8_t flag_inline = 0x80;
constexpr std::uint8_t flag_check_free = 0x20;
constexpr std::uint8_t flag_translation_offset = 0x10;
constexpr std::uint8_t flag_check_queue_pair = 0x08;

bool read_key_update(reader& in, work_request& out, std::size_t units) {
    auto& change = out.change;
    std::array<std::byte, 48> control{};
    std::array<std::byte, 64> context{};
    if (units != 8 && units != 12) {
        return in.wrong("wqe.length", "a key update of " + std::to_string(units) + " units");
    }
    for (std::size_t at = 0; at < control.size(); at += unit) {
        const auto bytes = in.next();
        std::copy(bytes.begin(), bytes.end(), control.begin() + static_cast<std::ptrdiff_t>(at));
    }
    for (std::size_t at = 0; at < context.size(); at += unit) {
        const auto bytes = in.next();
        std::copy(bytes.begin(), bytes.end(), context.begin() + static_cast<std::ptrdiff_t>(at));
    }
    const auto flags = static_cast<std::uint8_t>(control[0]);
    change.invalidate = units == 8;
    const auto expected_flags =
        static_cast<std::uint8_t>(flag_inline | flag_translation_offset |
                                  (change.invalidate ? flag_check_queue_pair : flag_check_free));
    const std::uint64_t expected_mask =
        mask_free | mask_variant | mask_queue_pair |
        (change.invalidate ? 0 : mask_length | mask_start | mask_rights);
    const std::uint16_t expected_entries = change.invalidate ? 0 : 4;
    if (flags != expected_flags || !all_zero(&control[1], 3) || !all_zero(&control[16], 32) ||
        load16(&control[4]) != expected_entries || load16(&control[6]) != 0) {
        return in.wrong("wqe.key_update", "control flags " + hex(flags) + ", entries " +
                                              std::to_string(load16(&control[4])) +
                                              ", or a reserved byte of it is set");
    }
    if (load64(&control[8]) != expected_mask) {
        return in.wrong("wqe.key_update", "the mask names " + hex(load64(&control[8])) + ", not " +
                                              hex(expected_mask));
    }
    const bool free = (static_cast<std::uint8_t>(context[0]) & 0x40) != 0;
    if (free != change.invalidate) return in.wrong("wqe.key_update", "the free bit says otherwise");
    const auto word = load32(&context[4]);
    change.variant = static_cast<std::uint8_t>(word);
    change.queue_pair = word >> 8;
    if (change.invalidate) return true;

    const auto rights = static_cast<std::uint8_t>(context[2]);
    if ((rights & ~0x78) != 0) return in.wrong("wqe.key_update", "unknown rights " + hex(rights));
    change.rights = static_cast<std::uint8_t>(rights >> 3);
    change.start = load64(&context[16]);
    change.length = load64(&context[24]);
    const auto list = in.next();
    change.source = {
        .address = load64(&list[8]), .length = load32(&list[0]), .key = load32(&list[4])};
    for (int i = 0; i < 3; ++i) {
        const auto rest = in.next();
        if (!all_zero(rest.data(), rest.size())) {
            return in.wrong("wqe.reserved", "the translation list's padding is not zero");
        }
    }
    return change.source.length == change.length ||
           in.wrong("wqe.key_update", "the list covers " + std::to_string(change.source.length) +
                                          " bytes of " + std::to_string(change.length));
}

bool read_control(reader& in, work_request& out, std::uint32_t queue_pair, std::size_t& units) {
    const auto bytes = in.next();
    const auto code = static_cast<std::uint8_t>(bytes[3]);
    if (bytes[0] != std::byte{0}) return in.wrong("wqe.opmod", "opmod is not 0");
    if (load16(&bytes[1]) != out.index) {
        return in.wrong("wqe.index", "it says block " + std::to_string(load16(&bytes[1])));
    }
    if (!known(code)) return in.wrong("wqe.opcode", "unknown operation " + hex(code));
    out.code = static_cast<opcode>(code);
    const auto word = load32(&bytes[4]);
    if (word >> 8 != queue_pair) return in.wrong("wqe.qpn", "it names " + hex(word >> 8));
    if ((word & 0xc0) != 0) return in.wrong("wqe.reserved", "bits above its length are set");
    units = word & 0x3f;
    if (bytes[8] != std::byte{0}) return in.wrong("wqe.signature", "a signature nobody asked for");
    if (load16(&bytes[9]) != 0) return in.wrong("wqe.reserved", "a stream number without streams");
    const auto modes = static_cast<std::uint8_t>(bytes[11]);
    if ((modes & 0x11) != 0) return in.wrong("wqe.reserved", "reserved mode bits " + hex(modes));
    const auto wait = modes >> 5;
    if (wait != 0 && wait != 1 && wait != 4) {
        return in.wrong("wqe.fence", "fence " + std::to_string(wait));
    }
    out.wait = static_cast<fence>(wait);
    const auto completion = modes >> 2 & 3;
    if (completion != 0 && completion != 2) {
        return in.wrong("wqe.completion_mode", "completion mode " + std::to_string(completion));
    }
    out.signalled = completion == 2;
    out.solicited = (modes & 2) != 0;
    out.immediate = load32(&bytes[12]);
    out.blocks = static_cast<std::uint16_t>((units + 3) / 4);
    return units >= 1 || in.wrong("wqe.length", "a length of 0");
}

}  // namespace

std::uint64_t work_request::length() const noexcept {
    if (inlined) return inline_bytes.size();
    std::uint64_t sum = 0;
    for (const auto& p : pieces) sum += p.length;
    return sum;
}

std::optional<work_request> decode_request(const send_ring& ring, std::uint16_t index,
                                           std::uint32_t queue_pair, violation_log& log) {
    work_request out;
    out.index = index;
    reader in(ring, index, queue_pair, log);
    std::size_t units = 0;
    if (!read_control(in, out, queue_pair, units)) return std::nullopt;
    if (out.blocks > ring.blocks) {
        in.wrong("wqe.length", std::to_string(units) + " units, more than the ring has");
        return std::nullopt;
    }
    bool good = true;
    switch (out.code) {
        case opcode::nop:
            good = units == 1 ||
                   in.wrong("wqe.length", "a NOP of " + std::to_string(units) + " units");
            break;
        case opcode::send:
        case opcode::send_immediate:
        case opcode::send_invalidate:
            good = read_data(in, out, units - 1);
            break;
        case opcode::write:
        case opcode::write_immediate:
        case opcode::read:
            good = units >= 2 ? read_remote(in, out) && read_data(in, out, units - 2)
                              : in.wrong("wqe.length", "no remote address");
            break;
        case opcode::compare_swap:
        case opcode::fetch_add:
            good = read_atomic(in, out, units);
            break;
        case opcode::key_update:
            good = read_key_update(in, out, units);
            break;
    }
    if (!good) return std::nullopt;
    return out;
}

}  // namespace softmlx5
