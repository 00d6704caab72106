#pragma once
// Bounded little-endian reading and writing, whatever the byte order of the machine.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rvget {

/// Appends to a buffer of its own.
class byte_writer {
public:
    explicit byte_writer(std::size_t expected_bytes = 0) { out_.reserve(expected_bytes); }

    void u8(std::uint8_t v) { little(v, 1); }
    void u16(std::uint16_t v) { little(v, 2); }
    void u24(std::uint32_t v) { little(v, 3); }  ///< the low 24 bits
    void u32(std::uint32_t v) { little(v, 4); }
    void u64(std::uint64_t v) { little(v, 8); }
    void bytes(std::span<const std::byte> v) { out_.insert(out_.end(), v.begin(), v.end()); }
    void text(std::string_view v) { bytes(std::as_bytes(std::span(v))); }

    /// Overwrites two bytes written before. Precondition: `at + 2 <= size()`.
    void patch_u16(std::size_t at, std::uint16_t v) {
        out_.at(at) = static_cast<std::byte>(v);
        out_.at(at + 1) = static_cast<std::byte>(v >> 8);
    }

    [[nodiscard]] std::size_t size() const noexcept { return out_.size(); }
    [[nodiscard]] std::vector<std::byte> take() && { return std::move(out_); }

private:
    void little(std::uint64_t v, unsigned width) {
        for (unsigned i = 0; i < width; ++i) {
            out_.push_back(static_cast<std::byte>(v >> (8 * i)));
        }
    }
    std::vector<std::byte> out_;
};

/// Reads a span that it does not own and never looks past its end. The first error sticks: from
/// then on nothing is left and every read gives zeros, so a decoder may check once, at its end.
class byte_reader {
public:
    /// `origin` is the offset of `bytes` in what the errors count from.
    explicit byte_reader(std::span<const std::byte> bytes, std::size_t origin = 0) noexcept
        : left_(bytes), offset_(origin) {}

    std::uint8_t u8() { return static_cast<std::uint8_t>(little(1)); }
    std::uint16_t u16() { return static_cast<std::uint16_t>(little(2)); }
    std::uint32_t u24() { return static_cast<std::uint32_t>(little(3)); }
    std::uint32_t u32() { return static_cast<std::uint32_t>(little(4)); }
    std::uint64_t u64() { return little(8); }

    /// The next `count` bytes; empty where fewer are left, which is an error.
    std::span<const std::byte> bytes(std::size_t count) {
        if (count > left_.size()) {
            fail("needs " + std::to_string(count) + " bytes where " + std::to_string(left_.size()) +
                 " are left");
            return {};
        }
        const auto taken = left_.first(count);
        left_ = left_.subspan(count);
        offset_ += count;
        return taken;
    }

    /// The next `count` bytes as a reader of their own; hand it to finish_part() when done.
    byte_reader part(std::size_t count) {
        const std::size_t at = offset_;
        return byte_reader(bytes(count), at);
    }
    /// Takes over the part's error; bytes that the part left unread are one.
    void finish_part(byte_reader& part) {
        part.expect_end();
        if (ok() && !part.ok()) {
            error_ = std::move(part.error_);
            left_ = {};
        }
    }

    /// Refuses bytes that are left over.
    void expect_end() {
        if (!left_.empty()) {
            fail(std::to_string(left_.size()) + " bytes are left over");
        }
    }

    /// Records what is wrong here (or at `offset`), unless something was wrong before.
    void fail(std::string_view cause) { fail_at(offset_, cause); }
    void fail_at(std::size_t offset, std::string_view cause) {
        if (ok()) {
            error_.assign(cause).append(" at offset ").append(std::to_string(offset));
            left_ = {};
        }
    }

    [[nodiscard]] bool ok() const noexcept { return error_.empty(); }
    /// "cause at offset N", empty while all is well.
    [[nodiscard]] const std::string& error() const noexcept { return error_; }
    [[nodiscard]] std::size_t remaining() const noexcept { return left_.size(); }
    [[nodiscard]] std::size_t offset() const noexcept { return offset_; }
    /// The next byte without taking it. Precondition: remaining() > 0.
    [[nodiscard]] std::uint8_t peek_u8() const noexcept {
        return std::to_integer<std::uint8_t>(left_.front());
    }

private:
    std::uint64_t little(unsigned width) {
        std::uint64_t v = 0;
        unsigned shift = 0;
        for (const std::byte b : bytes(width)) {
            v |= std::to_integer<std::uint64_t>(b) << shift;
            shift += 8;
        }
        return v;
    }

    std::span<const std::byte> left_;
    std::size_t offset_;
    std::string error_;
};

}  // namespace rvget
