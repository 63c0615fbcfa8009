// SPDX-License-Identifier: Apache-2.0
//! \file
//! A kernel of one thread reads a block of a drive: `hello_read [URI]`.
#include <cstdio>
#include <exception>

#include "forebay/machine.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"

namespace simt = forebay::simt;

/// A kernel is a functor, and a template on the machine that it runs on.
template <class M>
struct read_first_block {
  forebay::storage_ref<M> drive;
  forebay::buffer_ref buffer;
  forebay::status* outcome;

  FOREBAY_DEVICE void operator()() const {
    auto token = drive.read_async(buffer, 0, drive.block_bytes());
    // The thread is free to compute here.
    *outcome = token.wait();
  }
};

int main(int argc, char** argv) try {
  forebay::storage storage({.drives = {argc > 1 ? argv[1] : "emulated:size=1M"}, .device = "cpu"});
  char const text[] = "Hello, drive!";
  if (storage.raw_writable()) storage.pwrite(text, sizeof text, 0);

  // Drives read into registered memory only.
  forebay::registered_buffer buffer = storage.allocate_buffer(storage.block_bytes());
  forebay::status outcome;
  simt::launch<simt::fiber>({.blocks = 1, .threads_per_block = 1},
                            read_first_block<simt::fiber>{storage.ref<simt::fiber>(), buffer.ref(), &outcome});

  std::printf("%s: %.13s\n", to_string(outcome).c_str(), reinterpret_cast<char const*>(buffer.data()));
  return outcome.ok() ? 0 : 1;
} catch (std::exception const& failed) {
  std::fprintf(stderr, "hello_read: %s\n", failed.what());
  return 1;
}
