#pragma once
// How a ConnectX lays out what it shares with a driver: all of it big-endian. Checked against the
// structures of mlx5dv.h where those exist (takeover.cpp), and against what libmlx5 writes (tests).

#include <cstddef>
#include <cstdint>

namespace rvget::fabric::mlx5::layout {

// A send queue is a ring of 64-byte blocks; lengths of requests are counted in 16-byte units.
inline constexpr std::size_t block = 64;
inline constexpr std::size_t unit = 16;
inline constexpr std::size_t max_units = 63;

// Control segment: operation and index, queue pair and length, modes, immediate.
inline constexpr std::uint8_t operation_nop = 0x00;
inline constexpr std::uint8_t operation_send = 0x0a;
inline constexpr std::uint8_t operation_send_immediate = 0x0b;
inline constexpr std::uint8_t operation_read = 0x10;
inline constexpr std::uint8_t operation_compare_swap = 0x11;
inline constexpr std::uint8_t operation_fetch_add = 0x12;
inline constexpr std::uint8_t mode_signalled = 0x08;  ///< always write a completion
inline constexpr std::uint8_t mode_solicited = 0x02;
inline constexpr std::uint8_t mode_fence = 0x80;  ///< after all earlier READs and atomics
inline constexpr std::uint32_t inline_flag = 0x80000000;

// Doorbell records: two 32-bit words.
inline constexpr std::size_t send_record_word = 1;
inline constexpr std::size_t consumer_record_word = 0;
inline constexpr std::size_t arm_record_word = 1;

// A completion: the last 64 bytes of its entry.
inline constexpr std::size_t entry = 64;
inline constexpr std::size_t entry_bytes = 44;
inline constexpr std::size_t entry_vendor = 54;
inline constexpr std::size_t entry_syndrome = 55;
inline constexpr std::size_t entry_queue_pair = 56;  ///< operation in the upper 8 bits
inline constexpr std::size_t entry_counter = 60;
inline constexpr std::size_t entry_owner = 63;
inline constexpr std::uint8_t code_request = 0;
inline constexpr std::uint8_t code_request_error = 13;
inline constexpr std::uint8_t code_invalid = 15;

// Requests for an event.
inline constexpr std::size_t arm_register = 0x20;
inline constexpr unsigned arm_sequence_shift = 28;
inline constexpr std::uint32_t counter_mask = 0xffffff;

}  // namespace rvget::fabric::mlx5::layout
