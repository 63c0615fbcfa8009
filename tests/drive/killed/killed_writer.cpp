// SPDX-License-Identifier: Apache-2.0
//! \file
//! Writes to a drive until its parent kills it, and says what it does, a line each:
//!
//!     begun G         before it submits anything of generation G
//!     submitted G
//!     written G I     piece I is complete
//!     flushed G       all that it had said to be written is durable
//!
//! `killed_writer URI SEED GENERATION LINES BUG`: it begins with GENERATION, and after LINES lines it only waits; 0: it
//! goes on. BUG is `none`, or `says_too_early`: it says that a piece is written before it submits it.
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "drive/killed/stream.hpp"
#include "forebay/detail/drive/scheme.hpp"
#include "forebay/detail/emulator/backing_store.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/storage.hpp"
#include "support/store_drive.hpp"

namespace {

using namespace forebay::test::killed;
using forebay::simt::native;
namespace emulator = forebay::emulator;

/// Says that what was written is durable, and does nothing.
class lying_store final : public emulator::backing_store {
 public:
  explicit lying_store(std::unique_ptr<backing_store> of) : of_(std::move(of)) {}
  emulator::media view() override { return of_->view(); }
  bool sync() override { return true; }

 private:
  std::unique_ptr<backing_store> of_;
};

/// `copied:PATH` keeps what is written in memory of the process, and brings it to the file at a Flush, as a drive does
/// whose engine is on a GPU. `lying:PATH` does not even do so at a Flush.
void add_schemes() {
  for (std::string const name : {"copied", "lying"}) {
    forebay::drive::add_scheme(name,
                               [name](auto const& uri, auto const&) {
                                 auto store = emulator::working_copy(emulator::file_backing(uri.name(), 0, block_bytes),
                                                                     forebay::memory::host());
                                 if (name == "lying") store = std::make_unique<lying_store>(std::move(store));
                                 return std::make_unique<forebay::test::store_drive>(std::move(store));
                               },
                               {.name = "the path of a file"});
  }
}

class teller {
 public:
  explicit teller(std::uint64_t lines_until_it_waits) : left_(lines_until_it_waits) {}

  void say(std::string const& what, std::uint64_t generation, std::string const& more = "") {
    std::string const line = what + " " + std::to_string(generation) + more + "\n";
    // At once and whole: what was said before the end is in the pipe.
    if (::write(STDOUT_FILENO, line.data(), line.size()) != static_cast<ssize_t>(line.size())) ::_exit(0);
    if (left_ == 0 || --left_ != 0) return;
    char none = 0;
    (void)!::read(STDIN_FILENO, &none, 1);  // until it is killed, or its parent has gone
    ::_exit(0);
  }

 private:
  std::uint64_t left_;
};

void check(forebay::status const& outcome, char const* what) {
  if (!outcome) throw std::runtime_error(what);
}

[[noreturn]] void write_until_killed(std::string const& uri, std::uint64_t seed, std::uint64_t generation,
                                     teller& to_parent, bool says_too_early) {
  forebay::storage drive({.drives = {uri}, .device = "cpu"});
  auto const buffer = drive.allocate_buffer(4 * piece_blocks_max * block_bytes);
  auto const ref = drive.ref<native>();
  for (;; ++generation) {
    operation const writes = operation_of(seed, generation);
    to_parent.say("begun", generation);
    if (writes.empty()) {
      auto flush = ref.flush_async();
      to_parent.say("submitted", generation);
      check(flush.wait(), "a Flush failed");
      to_parent.say("flushed", generation);
      continue;
    }
    std::vector<decltype(ref.flush_async())> tokens;
    for (std::uint64_t i = 0; i < writes.size(); ++i) {
      if (says_too_early) to_parent.say("written", generation, " " + std::to_string(i));
      auto const from = buffer.ref().subspan(i * piece_blocks_max * block_bytes, writes[i].blocks * block_bytes);
      for (std::uint64_t b = 0; b < writes[i].blocks; ++b) {
        fill(from.data() + b * block_bytes, writes[i].first_block + b, generation);
      }
      tokens.push_back(ref.write_async(from, writes[i].first_block * block_bytes, writes[i].blocks * block_bytes));
    }
    to_parent.say("submitted", generation);
    for (std::uint64_t i = 0; i < writes.size(); ++i) {
      check(tokens[i].wait(), "a write failed");
      if (!says_too_early) to_parent.say("written", generation, " " + std::to_string(i));
    }
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    add_schemes();
    teller to_parent(std::stoull(argv[4]));
    write_until_killed(argv[1], std::stoull(argv[2]), std::stoull(argv[3]), to_parent,
                       argv[5] == std::string("says_too_early"));
  } catch (std::exception const& failed) {
    std::string const line = std::string("failed: ") + failed.what() + "\n";
    (void)!::write(STDOUT_FILENO, line.data(), line.size());
    return 1;
  }
}
