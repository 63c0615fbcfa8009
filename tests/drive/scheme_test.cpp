// SPDX-License-Identifier: Apache-2.0
//! \file
//! Schemes of the test's own. A program of its own: a scheme stays until the process ends.
#include "forebay/detail/drive/scheme.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>

#include "forebay/error.hpp"
#include "forebay/storage.hpp"

namespace forebay::drive {
namespace {

/// A name that no test of this process has had.
std::string fresh_name(std::string const& begin) {
  static std::atomic<int> count{0};
  return begin + std::to_string(++count);
}

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (refused_input const& refused) {
    return refused.what();
  }
  return "accepted";
}

/// An emulated drive that counts the calls of `registers`, and that reports a label of its own.
class wrapped final : public device {
 public:
  wrapped(std::unique_ptr<device> inner, std::string label, std::atomic<int>& asked)
      : inner_(std::move(inner)), label_(std::move(label)), asked_(asked) {}
  driver::register_space& registers() override {
    ++asked_;
    return inner_->registers();
  }
  driver::dma_space& dma() override { return inner_->dma(); }
  std::optional<int> gpu() const override { return inner_->gpu(); }
  void hold() override { inner_->hold(); }
  void release() noexcept override { inner_->release(); }
  std::uint64_t populate(std::uint64_t bytes) override { return inner_->populate(bytes); }
  void reset_statistics() override { inner_->reset_statistics(); }
  nlohmann::json report() override {
    nlohmann::json report = inner_->report();
    report["label"] = label_;
    return report;
  }

 private:
  std::unique_ptr<device> inner_;
  std::string label_;
  std::atomic<int>& asked_;
};

std::unique_ptr<device> never(uri const&, open_options const&) {
  return nullptr;
}

TEST(add_scheme, brings_a_drive_from_its_uri_to_reads_and_writes_of_a_storage) {
  static std::atomic<int> asked{0};
  std::string const name = fresh_name("wrapped");
  add_scheme(name,
             [](uri const& from, open_options const& options) {
               std::uint64_t const bytes = parse_bytes("size", from.value("size").value_or(""));
               return std::make_unique<wrapped>(open("emulated:size=" + std::to_string(bytes), options), from.name(),
                                                asked);
             },
             {.name = "a label", .keys = {"size"}});
  auto const report = open(name + ":mine,size=4M")->report();
  EXPECT_EQ(report["label"], "mine");
  EXPECT_EQ(report["size_bytes"], 4 << 20);

  storage drives({.drives = {name + ":mine,size=4M"}, .device = "cpu"});
  EXPECT_EQ(drives.size_bytes(), 4u << 20);
  EXPECT_GT(asked, 0);
  std::string const text(512, 'x');
  drives.pwrite(text.data(), text.size(), 1024);
  std::string back(512, '\0');
  drives.pread(back.data(), back.size(), 1024);
  EXPECT_EQ(back, text);
}

TEST(add_scheme, what_may_follow_the_colon_is_checked_as_for_any_scheme) {
  std::string const name = fresh_name("checked");
  add_scheme(name, never, {.name = "a label", .keys = {"size", "speed"}});
  EXPECT_EQ(refusal([&] { open(name + ":"); }), "drive: '" + name + ":': give a label after " + name + ":");
  EXPECT_EQ(refusal([&] { open(name + ":x,spede=1"); }),
            "spede: '1': " + name + ": has no such key; did you mean speed?");
  std::string const bare = fresh_name("bare");
  add_scheme(bare, never);
  EXPECT_EQ(refusal([&] { open(bare + ":size=1M"); }), "size: '1M': " + bare + ": takes no keys");
  EXPECT_EQ(
      refusal([&] { create(bare + ":"); }),
      "drive: '" + bare + ":': only a drive in a file can be made; use file:PATH, or emulated: with backing=file");
}

TEST(add_scheme, that_opens_nothing_fails) {
  std::string const name = fresh_name("nothing");
  add_scheme(name, never);
  EXPECT_THROW(open(name + ":"), operation_failed);
}

TEST(add_scheme, an_unknown_scheme_is_told_all_that_there_are) {
  std::string const name = fresh_name("known");
  add_scheme(name, never);
  std::string const told = refusal([] { open("tape:size=1M"); });
  for (std::string const known : {"emulated", "file", "pci", name.c_str()}) {
    EXPECT_NE(told.find(known + ":"), std::string::npos) << told;
  }
}

TEST(add_scheme, refuses_names_that_are_taken_or_no_names) {
  std::string const name = fresh_name("taken");
  add_scheme(name, never);
  for (std::string const& taken : {std::string("emulated"), std::string("file"), std::string("pci"), name}) {
    EXPECT_EQ(refusal([&] { add_scheme(taken, never); }),
              "scheme: '" + taken + "': a scheme of this name is registered already; give another name");
  }
  for (std::string const bad : {"", "1drive", "Drive", "my_drive", "my drive", "a:", "a,b", "-a", "\xc3\xa4"}) {
    EXPECT_EQ(refusal([&] { add_scheme(bad, never); }),
              "scheme: '" + bad + "': give a name of a-z, 0-9, +, . and - that begins with a letter, as in my-drive");
  }
  EXPECT_EQ(refusal([&] { add_scheme(fresh_name("a9+.-"), never); }), "accepted");
}

TEST(add_scheme, refuses_what_could_not_be_opened) {
  std::string const name = fresh_name("empty");
  EXPECT_EQ(refusal([&] { add_scheme(name, {}); }), "open: '': give the function that opens drives of the scheme");
  for (std::string const key : {"", "a,b", "a=b"}) {
    EXPECT_EQ(refusal([&] { add_scheme(name, never, {.keys = {"size", key}}); }),
              "key: '" + key + "': give keys that are not empty, and have no comma and no equals sign");
  }
  EXPECT_EQ(refusal([&] { add_scheme(name, never); }), "accepted") << "nothing of what was refused stays";
}

TEST(add_scheme, two_threads_add_and_open_at_once_and_one_of_them_gets_a_name_that_both_want) {
  constexpr int rounds = 50;
  std::atomic<int> added{0}, refused{0};
  std::barrier together(2);
  auto const work = [&](std::string const& own, std::string const& wanted) {
    for (int i = 0; i < rounds; ++i) {
      together.arrive_and_wait();
      try {
        add_scheme(wanted + std::to_string(i) + "x", never);
        ++added;
      } catch (refused_input const&) {
        ++refused;
      }
      std::string const name = own + std::to_string(i) + "x";
      add_scheme(name, [](uri const&, open_options const& options) { return open("emulated:size=1M", options); });
      EXPECT_EQ(open(name + ":")->report()["size_bytes"], 1 << 20);
    }
  };
  std::string const wanted = fresh_name("both") + "-", one = fresh_name("one") + "-", other = fresh_name("other") + "-";
  std::thread first(work, one, wanted), second(work, other, wanted);
  first.join();
  second.join();
  EXPECT_EQ(added, rounds);
  EXPECT_EQ(refused, rounds);
}

}  // namespace
}  // namespace forebay::drive
