// SPDX-License-Identifier: Apache-2.0
#include "file_extents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "forebay/detail/drive/file_placement.hpp"
#include "forebay/error.hpp"
#include "placed_file.hpp"

namespace forebay::drive::files {
namespace {

constexpr std::chrono::milliseconds between_looks{20};
constexpr int looks_a_second = 50;
constexpr std::uint64_t compared_bytes = 4096;
constexpr std::size_t most_compared = 64;

/// The URI within the URI has semicolons where it would have commas.
std::string drive_uri_of(uri const& from) {
  std::string text = from.value("on").value_or("");
  if (text.empty()) {
    throw refused_input("on", "", "name the drive that the daemon has, as in on=pci:0000:01:00.0");
  }
  std::replace(text.begin(), text.end(), ';', ',');
  auto const residency = uri::parse(text).value("residency");
  if (!residency) return text + ",residency=served";
  if (*residency != "served") {
    throw refused_input("on", text, "a file system is mounted from a drive that a daemon has: give residency=served");
  }
  return text;
}

class file_device final : public device, private driver::register_space {
 public:
  file_device(uri const& from, open_options const& options)
      : uri_(from.text()),
        path_(from.name()),
        drive_uri_(drive_uri_of(from)),
        file_(from.name()),
        where_(file_->where()) {
    whole_ = drive::open(drive_uri_, options);
    watcher_ = std::thread([this] { watch(); });
  }
  ~file_device() override {
    {
      std::lock_guard const lock(mutex_);
      closing_ = true;
    }
    wake_.notify_all();
    watcher_.join();
  }
  file_device(file_device const&) = delete;
  file_device& operator=(file_device const&) = delete;

  driver::register_space& registers() override { return *this; }
  driver::dma_space& dma() override { return whole_->dma(); }
  std::optional<int> gpu() const override { return whole_->gpu(); }
  gpu_placements placements() const override { return whole_->placements(); }
  bool data_may_be_late(bool on_gpu) const override { return whole_->data_may_be_late(on_gpu); }
  void order_data() override { whole_->order_data(); }
  driver::quirks quirks() const override { return whole_->quirks(); }
  std::uint32_t nsid() const override { return whole_->nsid(); }
  std::uint32_t most_queue_pairs() const override { return whole_->most_queue_pairs(); }
  void hold() override { whole_->hold(); }
  void release() noexcept override { whole_->release(); }
  void reset_statistics() override { whole_->reset_statistics(); }
  std::vector<file_extent> file_extents() const override { return where_.extents; }
  nlohmann::json report() override {
    nlohmann::json document = whole_->report();
    document["uri"] = uri_;
    document["file"] = {{"path", path_},
                        {"bytes", where_.file_bytes},
                        {"extents", where_.extents.size()},
                        {"device", where_.device},
                        {"drive", drive_uri_}};
    return document;
  }
  void check_bytes(reader const& read) override {
    std::vector<std::byte> from_drive(compared_bytes), from_file(compared_bytes);
    std::size_t const step = where_.extents.size() / most_compared + 1;
    for (std::size_t i = 0; i < where_.extents.size(); i += step) {
      file_extent const& e = where_.extents[i];
      std::size_t const bytes = std::min(compared_bytes, e.bytes);
      // Its first bytes, and those in its middle: many files begin with the same.
      for (std::uint64_t const at : {e.byte, e.byte + (e.bytes - bytes) / 2 / bytes * bytes}) {
        std::size_t const in_file = std::min<std::uint64_t>(bytes, where_.file_bytes > at ? where_.file_bytes - at : 0);
        read(from_drive.data(), bytes, at);
        {
          std::lock_guard const lock(mutex_);
          if (!file_) return;  // somebody wants to write it; the device has left
          file_->read(from_file.data(), in_file, at);
        }
        if (std::equal(from_file.begin(), from_file.begin() + static_cast<std::ptrdiff_t>(in_file),
                       from_drive.begin())) {
          continue;
        }
        throw refused_input("on", drive_uri_,
                            fmt::format("that drive does not hold {}, which lies on {}: name the drive from which that "
                                        "is served",
                                        path_, where_.device));
      }
    }
  }

 private:
  std::uint32_t read32(std::uint32_t offset_bytes) override { return whole_->registers().read32(offset_bytes); }
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override {
    whole_->registers().write32(offset_bytes, value);
  }
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override { return whole_->registers().doorbell(offset_bytes); }
  std::uint32_t* doorbell_for_gpu(std::uint32_t offset_bytes) override {
    return whole_->registers().doorbell_for_gpu(offset_bytes);
  }
  bool has_left() override { return whole_->registers().has_left(); }

  /// Somebody may want to write the file at any time. Then the drive lets go first, and the file after that.
  void watch() {
    std::unique_lock lock(mutex_);
    int looks = 0;
    do {
      bool const thorough = looks++ % looks_a_second == 0;
      if (!file_->is_wanted() && !(thorough && file_->has_moved())) continue;
      whole_->end();
      file_.reset();
      return;
    } while (!wake_.wait_for(lock, between_looks, [this] { return closing_; }));
  }

  std::string const uri_;
  std::string const path_;
  std::string const drive_uri_;
  std::optional<placed_file> file_;  ///< with `mutex_`; none once it may change
  placement const where_;
  std::unique_ptr<device> whole_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool closing_ = false;
  std::thread watcher_;
};

}  // namespace

scheme_syntax syntax() {
  return {.name = "the path of a file", .keys = {"on"}};
}

std::unique_ptr<device> open(uri const& from, open_options const& options) {
  if (!options.read_only) {
    throw refused_input("read_only", "false",
                        "the bytes of a file can only be read past its file system: open the storage to read only");
  }
  return std::make_unique<file_device>(from, options);
}

}  // namespace forebay::drive::files

namespace forebay::drive {

nlohmann::json placement_of(std::string const& file) {
  files::placed_file const placed(file);
  nlohmann::json extents = nlohmann::json::array();
  for (file_extent const& e : placed.where().extents) {
    extents.push_back({{"byte", e.byte}, {"byte_on_device", e.byte_on_drive}, {"bytes", e.bytes}});
  }
  return {{"file", placed.path()},
          {"device", placed.where().device},
          {"file_bytes", placed.where().file_bytes},
          {"extents", std::move(extents)}};
}

}  // namespace forebay::drive
