// SPDX-License-Identifier: Apache-2.0
//! \file
//! The processes that the tests of served drives start: a daemon, or a client.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "drive/hostile_client.hpp"
#include "forebay/detail/drive/served.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/storage.hpp"

namespace {

using forebay::storage;
using forebay::simt::native;

constexpr std::uint64_t block = 4096;

void say(std::string const& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

storage open(std::string const& uri) {
  return storage({.drives = {uri}, .device = "cpu"});
}

/// Keeps many writes in flight until it is killed.
[[noreturn]] void stay_busy(std::string const& uri) {
  storage s = open(uri);
  auto const buffer = s.allocate_buffer(256 * block);
  for (bool said = false;; said = true) {
    std::vector<forebay::token<native>> tokens;
    for (std::uint64_t i = 0; i < 256; ++i) {
      tokens.push_back(s.ref<native>().write_async(buffer.ref().subspan(i * block, block), (512 + i) * block, block));
    }
    if (!said) say("busy");
    for (auto& t : tokens) {
      if (!t.wait().ok()) ::_exit(3);
    }
  }
}

/// Writes and flushes one number after the other, and prints each when it is flushed, until the drive goes.
[[noreturn]] void count(std::string const& uri, std::uint64_t timeout_ns) {
  storage s({.drives = {uri}, .device = "cpu", .timeout_ns = timeout_ns, .flush_timeout_ns = timeout_ns});
  for (std::uint64_t number = 1;; ++number) {
    s.pwrite(&number, sizeof number, 4096);
    s.flush();
    say(std::to_string(number));
  }
}

int run(std::vector<std::string> const& arguments) {
  std::string const& what = arguments.at(0);
  if (what == "serve" || what == "serve_for_a_parent") {
    forebay::drive::serve_options options;
    if (what == "serve_for_a_parent") options.lifeline = STDIN_FILENO;
    options.socket = arguments.at(1);
    options.drives.assign(arguments.begin() + 2, arguments.end());
    options.ready = [] { say("ready"); };
    options.notice = [](std::string const& line) { say("notice " + line); };
    say(forebay::drive::serve(options).dump());
  } else if (what == "write") {
    open(arguments.at(1)).pwrite(arguments.at(2).data(), arguments.at(2).size(), 12'345);
  } else if (what == "read") {
    std::string text(std::stoul(arguments.at(2)), '\0');
    open(arguments.at(1)).pread(text.data(), text.size(), 12'345);
    say(text);
  } else if (what == "harm") {
    forebay::test::do_harm(arguments.at(1), arguments.at(2), arguments.at(3), std::stoull(arguments.at(4)),
                           native::clock_ns() + std::stoull(arguments.at(5)));
  } else if (what == "count") {
    count(arguments.at(1), std::stoull(arguments.at(2)));
  } else if (what == "busy") {
    stay_busy(arguments.at(1));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (std::exception const& e) {
    say(e.what());
    return 1;
  }
}
