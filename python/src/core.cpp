// SPDX-License-Identifier: Apache-2.0
//! \file
//! forebay._core: the C++ library as python/forebay uses it. Structured results cross as JSON text. The stub
//! python/forebay/_core.pyi declares the same names and signatures.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <vector>

#include "apps/block_io/block_io.hpp"
#include "apps/file_io/file_io.hpp"
#include "apps/graph/run_bfs.hpp"
#include "apps/replay/replay.hpp"
#include "build_info.hpp"
#include "dlpack.hpp"
#include "ended_transfers.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/file_placement.hpp"
#include "forebay/detail/drive/profile.hpp"
#include "forebay/detail/drive/real.hpp"
#include "forebay/detail/drive/served.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "latency_json.hpp"
#include "python_buffer.hpp"
#include "python_lock.hpp"
#include "shared_storage.hpp"

namespace nb = nanobind;
using nlohmann::json;

namespace forebay {
namespace {

using python::buffer_owner;
using python::dlpack_facts;
using python::ended_transfers;
using python::keyword_options;
using python::python_buffer;
using python::rethrow_renamed;
using python::shared_storage;
using python::stay_for_ever;
using python::to_json;
using python::with_lock;
using python::without_lock;

/// Calls `make`, which makes an extent.
template <class Make>
auto with_size_named(Make&& make) {
  try {
    return make();
  } catch (refused_input const& refused) {
    constexpr std::pair<std::string_view, char const*> names[] = {{"bytes", "size_bytes"}};
    rethrow_renamed(refused, names);
  }
}

json to_json(extent const& e) {
  return {{"name", e.name}, {"first_byte", e.first_byte}, {"bytes", e.size_bytes}};
}

json to_json(apps::command_latencies const& latencies) {
  return {{"slat_ns", to_json(latencies.submission)},
          {"clat_ns", to_json(latencies.completion)},
          {"lat_ns", to_json(latencies.total)}};
}

std::string build_info() {
  json gpus = json::array();
  int const count = memory::device_count();
  for (int i = 0; i < count; ++i) gpus.push_back("cuda:" + std::to_string(i));
#ifdef FOREBAY_HAS_CUDA
  constexpr bool cuda = true;
#else
  constexpr bool cuda = false;
#endif
  return json{{"version", python::build_version}, {"commit", python::build_commit}, {"cuda", cuda}, {"gpus", gpus}}
      .dump();
}

using phase_listener = std::optional<nb::typed<nb::callable, void(std::string_view, double)>>;

block_io::progress progress_of(phase_listener const& tell) {
  if (!tell) return {};
  return [&](std::string_view phase, double share) { with_lock([&] { (*tell)(phase, share); }); };
}

json to_json(block_io::result const& r) {
  return {{"read", to_json(r.read)},
          {"write", to_json(r.write)},
          {"seconds", r.seconds},
          {"usr_cpu", r.processor.user_percent},
          {"sys_cpu", r.processor.system_percent},
          {"threads", r.threads},
          {"size_bytes", r.size_bytes},
          {"populated", r.populated},
          {"verified_blocks", r.verified_blocks},
          {"mismatches", r.mismatches},
          {"first_mismatch_byte", r.mismatches == 0 ? json() : json(r.first_mismatch_byte)},
          {"errors", r.errors},
          {"first_error", r.errors == 0 ? json() : json(to_string(r.first_error))}};
}

std::string run_block_io(shared_storage& drives, bool random, std::uint32_t read_percent, std::uint64_t block_bytes,
                         std::uint32_t iodepth, std::uint32_t gpu_threads, std::uint64_t size_bytes, double runtime_s,
                         double ramp_time_s, std::uint64_t seed, bool verify, bool lay_down,
                         phase_listener const& tell) {
  block_io::options const wanted{.random = random,
                                 .read_percent = read_percent,
                                 .block_bytes = block_bytes,
                                 .iodepth = iodepth,
                                 .gpu_threads = gpu_threads,
                                 .size_bytes = size_bytes,
                                 .runtime_s = runtime_s,
                                 .ramp_time_s = ramp_time_s,
                                 .seed = seed,
                                 .verify = verify,
                                 .lands = true,
                                 .lay_down = lay_down};
  block_io::progress const progress = progress_of(tell);
  return to_json(drives.with([&](storage& s) { return block_io::run(s, wanted, progress); })).dump();
}

std::string run_file_io(std::string path, std::string engine, int gpu, bool random, std::uint32_t read_percent,
                        std::uint64_t block_bytes, std::uint32_t iodepth, std::uint32_t gpu_threads,
                        std::uint64_t size_bytes, double runtime_s, double ramp_time_s, std::uint64_t seed, bool verify,
                        bool lay_down, phase_listener const& tell) {
  file_io::options const wanted{.path = std::move(path),
                                .engine = std::move(engine),
                                .gpu = gpu,
                                .job = {.random = random,
                                        .read_percent = read_percent,
                                        .block_bytes = block_bytes,
                                        .iodepth = iodepth,
                                        .gpu_threads = gpu_threads,
                                        .size_bytes = size_bytes,
                                        .runtime_s = runtime_s,
                                        .ramp_time_s = ramp_time_s,
                                        .seed = seed,
                                        .verify = verify,
                                        .lay_down = lay_down}};
  block_io::progress const progress = progress_of(tell);
  without_lock const unlocked;
  file_io::result const r = file_io::run(wanted, progress);
  json document = to_json(r.job);
  if (r.job.errors != 0) document["first_error"] = r.first_error;
  document["way"] = r.way;
  document["cufile"] = r.cufile.empty() ? json() : json(r.cufile);
  document["file"] = {{"path", wanted.path},          {"size_bytes", r.file_bytes},
                      {"block_bytes", r.block_bytes}, {"block_device", r.block_device},
                      {"direct", r.direct},           {"has_holes", r.has_holes}};
  return document.dump();
}

json to_json(replay::operation_counts const& c) {
  return {{"reads", c.reads},
          {"writes", c.writes},
          {"flushes", c.flushes},
          {"bytes_read", c.read_bytes},
          {"bytes_written", c.write_bytes}};
}

std::string run_replay(shared_storage& drives, buffer_owner operations, std::string const& trace_name, bool open_loop,
                       std::uint32_t iodepth, std::uint32_t gpu_threads, bool wrap, bool verify, std::uint64_t seed) {
  python_buffer const buffer(operations, false);
  if (buffer.size_bytes() % sizeof(replay::operation) != 0) {
    throw refused_input("operations", std::to_string(buffer.size_bytes()) + " bytes", "must be whole operations");
  }
  std::span<replay::operation const> const trace(static_cast<replay::operation const*>(buffer.data()),
                                                 buffer.size_bytes() / sizeof(replay::operation));
  replay::options const wanted{.trace_name = trace_name,
                               .open_loop = open_loop,
                               .iodepth = iodepth,
                               .gpu_threads = gpu_threads,
                               .wrap = wrap,
                               .verify = verify,
                               .seed = seed};
  replay::result const r = drives.with([&](storage& s) { return replay::run(s, trace, wanted); });
  bool const failed = r.errors != 0;
  return json{{"asked", to_json(r.asked)},
              {"completed", to_json(r.completed)},
              {"commands",
               {{"read_commands", r.commands.reads},
                {"write_commands", r.commands.writes},
                {"flush_commands", r.commands.flushes}}},
              {"wrapped", r.wrapped},
              {"read", to_json(r.read)},
              {"write", to_json(r.write)},
              {"flush", to_json(r.flush)},
              {"lag_ns", to_json(r.lag)},
              {"lag_bound_ns", replay::lag_bound_ns},
              {"above_bound", r.above_bound},
              {"seconds", r.seconds},
              {"usr_cpu", r.processor.user_percent},
              {"sys_cpu", r.processor.system_percent},
              {"threads", r.threads},
              {"verified_blocks", r.verified_blocks},
              {"mismatches", r.mismatches},
              {"first_mismatch_byte", r.mismatches == 0 ? json() : json(r.first_mismatch_byte)},
              {"errors", r.errors},
              {"first_error", failed ? json(to_string(r.first_error)) : json()},
              {"first_error_line", failed ? json(r.first_error_line) : json()}}
      .dump();
}

using vertex_offsets = nb::ndarray<std::uint64_t const, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using vertex_numbers = nb::ndarray<nb::numpy, std::uint32_t, nb::ndim<1>>;
using level_listener = std::optional<nb::typed<nb::callable, void(std::uint32_t, std::uint64_t)>>;

nb::typed<nb::tuple, vertex_numbers, vertex_numbers, nb::str> run_bfs(shared_storage& drives, std::string const& edges,
                                                                      vertex_offsets const& row_begin,
                                                                      std::uint32_t source, std::uint32_t iodepth,
                                                                      std::uint64_t request_bytes,
                                                                      level_listener const& tell) {
  graph::bfs_options const wanted{.iodepth = iodepth, .request_bytes = request_bytes};
  graph::bfs_progress progress;
  if (tell) {
    progress = [&](std::uint32_t level, std::uint64_t frontier) { with_lock([&] { (*tell)(level, frontier); }); };
  }
  std::span<std::uint64_t const> const rows(row_begin.data(), row_begin.shape(0));
  auto r = std::make_unique<graph::bfs_result>(
      drives.with([&](storage& s) { return graph::run_bfs(s, s.find_extent(edges), rows, source, wanted, progress); }));
  std::string const figures = json{
      {"frontier", r->frontiers},
      {"clat_ns", to_json(r->latency)},
      {"seconds", r->seconds},
      {"reads", r->reads},
      {"bytes_read", r->read_bytes},
      {"bytes_needed", r->useful_bytes},
      {"request_bytes",
       r->request_bytes}}.dump();
  std::uint32_t* const distances = r->distances.data();
  std::uint32_t* const predecessors = r->predecessors.data();
  std::size_t const count = r->distances.size();
  nb::capsule const owner(r.release(), [](void* p) noexcept { delete static_cast<graph::bfs_result*>(p); });
  return nb::make_tuple(vertex_numbers(distances, {count}, owner), vertex_numbers(predecessors, {count}, owner),
                        figures);
}

/// Memory that a transfer moves, and where; numbers and names as Python has them.
void start_transfer(shared_storage& drives, ended_transfers& ended, std::uint64_t number, bool writes,
                    std::uint64_t address, std::uint64_t bytes, bool on_gpu, std::uint64_t offset_bytes,
                    std::optional<std::uint64_t> stream, std::optional<std::string> const& extent_name,
                    std::optional<std::tuple<std::uint64_t, std::uint64_t>> const& staged) {
  bool interrupted = false;
  auto const asks_for_signals = [&] {
    with_lock([&] { interrupted = PyErr_CheckSignals() != 0; });
    return interrupted;
  };
  try {
    drives.with([&](storage& s) {
      extent within;
      if (extent_name) {
        within =
            staged ? extent{*extent_name, std::get<0>(*staged), std::get<1>(*staged)} : s.find_extent(*extent_name);
      }
      ended.start(number, [&](auto const& told) {
        host_transfer_options const options{.within = extent_name ? &within : nullptr,
                                            .on_gpu = on_gpu,
                                            .stream = stream,
                                            .interrupted = asks_for_signals,
                                            .ended = told};
        auto* const memory = reinterpret_cast<void*>(address);
        return writes ? s.pwrite_async(memory, bytes, offset_bytes, options)
                      : s.pread_async(memory, bytes, offset_bytes, options);
      });
    });
  } catch (transfer_cancelled const&) {
    if (interrupted) throw nb::python_error();
    throw;
  }
}

/// Serves on this thread, on which the two functions are called too.
std::string serve(std::string socket, std::vector<std::string> drives, int lifeline,
                  nb::typed<nb::callable, void()> const& ready,
                  nb::typed<nb::callable, void(std::string)> const& notice) {
  drive::serve_options options;
  options.lifeline = lifeline;
  options.socket = std::move(socket);
  options.drives = std::move(drives);
  options.ready = [&] { with_lock([&] { ready(); }); };
  options.notice = [&](std::string const& line) { with_lock([&] { notice(line); }); };
  without_lock const unlocked;
  return drive::serve(options).dump();
}

using step_listener = nb::typed<nb::callable, void(std::string, std::string)>;

/// Calls `change`, which gives a real drive to another driver.
template <class Change>
std::string change_driver(Change const& change, std::string const& uri, bool dry_run, step_listener const& tell) {
  auto const listener = [&](std::string const& what, std::string const& line) { with_lock([&] { tell(what, line); }); };
  without_lock const unlocked;
  return change(uri, dry_run, listener).dump();
}

/// Raises the classes of forebay.errors, so that C++ and Python refuse alike.
void translate(std::exception_ptr const& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (refused_input const& e) {
    nb::object const type = nb::module_::import_("forebay.errors").attr("RefusedInput");
    nb::object const error = type(e.field(), e.value(), e.remedy());
    PyErr_SetObject(type.ptr(), error.ptr());
  } catch (operation_failed const& e) {
    nb::object const type = nb::module_::import_("forebay.errors").attr("OperationFailed");
    PyErr_SetString(type.ptr(), e.what());
  } catch (std::system_error const& e) {  // such as a thread that the system does not grant
    nb::object const type = nb::module_::import_("forebay.errors").attr("OperationFailed");
    PyErr_SetString(type.ptr(), e.what());
  } catch (transfer_cancelled const& e) {
    nb::object const type = nb::module_::import_("concurrent.futures").attr("CancelledError");
    PyErr_SetString(type.ptr(), e.what());
  }
}

}  // namespace
}  // namespace forebay

NB_MODULE(_core, m) {
  using namespace forebay;
  nb::register_exception_translator(translate);
  // A storage that a notebook still holds when the interpreter ends is no defect.
  nb::set_leak_warnings(false);
  m.def("build_info", &build_info);
  m.def(
      "create_drive",
      [](std::string const& uri, bool resize) {
        without_lock const unlocked;
        resize ? drive::grow(uri) : drive::create(uri);
      },
      nb::arg("uri"), nb::arg("resize"));
  m.def("profile_folders", &drive::profile_folders);
  m.def("daemon_socket", &drive::daemon_socket);
  m.def(
      "placement_of",
      [](std::string const& file) {
        without_lock const unlocked;
        return drive::placement_of(file).dump();
      },
      nb::arg("file"));
  m.def(
      "inspect_real_drive",
      [](std::string const& uri) {
        without_lock const unlocked;
        return drive::inspect_real_drive(uri).dump();
      },
      nb::arg("uri"));
  m.def(
      "inspect_real_drives",
      [](std::string const& root) {
        without_lock const unlocked;
        return drive::inspect_real_drives(root).dump();
      },
      nb::arg("root"));
  m.def(
      "attach_real_drive",
      [](std::string const& uri, bool dry_run, step_listener const& tell) {
        return change_driver(drive::attach_real_drive, uri, dry_run, tell);
      },
      nb::arg("uri"), nb::arg("dry_run"), nb::arg("tell"));
  m.def(
      "detach_real_drive",
      [](std::string const& uri, bool dry_run, step_listener const& tell) {
        return change_driver(drive::detach_real_drive, uri, dry_run, tell);
      },
      nb::arg("uri"), nb::arg("dry_run"), nb::arg("tell"));
  m.def("multiprocessors", &emulator::multiprocessors, nb::arg("ordinal"));
  m.def("serve", &serve, nb::arg("socket"), nb::arg("drives"), nb::arg("lifeline"), nb::arg("ready"),
        nb::arg("notice"));

  nb::class_<std::stop_source>(m, "StopSource").def(nb::init<>()).def("request_stop", [](std::stop_source& self) {
    without_lock const unlocked;
    self.request_stop();
  });
  nb::class_<keyword_options>(m, "StorageOptions")
      .def(
          "__init__",
          [](keyword_options* made, std::uint32_t queues_per_drive, std::uint32_t queue_depth, std::uint32_t requests,
             std::uint32_t prp_list_pages, std::uint64_t stripe_bytes, std::uint64_t timeout_ns,
             std::uint64_t flush_timeout_ns, std::uint64_t cache_bytes, std::uint32_t page_bytes,
             std::uint32_t overflow_frames, std::string const& cache_policy, std::uint64_t cache_host_bytes,
             std::uint32_t cache_staging_pages, bool cache_statistics) {
            new (made) keyword_options{queues_per_drive,    queue_depth,     requests,         prp_list_pages,
                                       stripe_bytes,        timeout_ns,      flush_timeout_ns, cache_bytes,
                                       page_bytes,          overflow_frames, cache_policy,     cache_host_bytes,
                                       cache_staging_pages, cache_statistics};
          },
          nb::kw_only(), nb::arg("queues_per_drive"), nb::arg("queue_depth"), nb::arg("requests"),
          nb::arg("prp_list_pages"), nb::arg("stripe_bytes"), nb::arg("timeout_ns"), nb::arg("flush_timeout_ns"),
          nb::arg("cache_bytes"), nb::arg("page_bytes"), nb::arg("overflow_frames"), nb::arg("cache_policy"),
          nb::arg("cache_host_bytes"), nb::arg("cache_staging_pages"), nb::arg("cache_statistics"));
  m.def(
      "address_of",
      [](buffer_owner buffer) { return reinterpret_cast<std::uint64_t>(python_buffer(buffer, false).data()); },
      nb::arg("buffer"));
  m.def("facts_of_dlpack", &python::facts_of_dlpack, nb::arg("capsule"));
  nb::class_<ended_transfers>(m, "EndedTransfers")
      .def(nb::init<>())
      .def("has", &ended_transfers::has, nb::arg("number"))
      .def("cancel", &ended_transfers::cancel, nb::arg("number"))
      .def("wait", &ended_transfers::wait)
      .def("stop", &ended_transfers::stop);
  nb::class_<shared_storage>(m, "Storage")
      .def(nb::init<std::vector<std::string>, std::string, bool, bool, keyword_options const&,
                    std::stop_source const&>(),
           nb::arg("drives"), nb::arg("device"), nb::arg("read_only"), nb::arg("allow_destroy"), nb::arg("options"),
           nb::arg("cancel"))
      .def_prop_ro("size_bytes",
                   [](shared_storage& self) { return self.with([](storage& s) { return s.size_bytes(); }); })
      .def_prop_ro("block_bytes",
                   [](shared_storage& self) { return self.with([](storage& s) { return s.block_bytes(); }); })
      .def_prop_ro("device",
                   [](shared_storage& self) {
                     return self.with([](storage& s) {
                       return s.on_gpu() ? "cuda:" + std::to_string(s.gpu_ordinal()) : std::string("cpu");
                     });
                   })
      .def_prop_ro("raw_writable",
                   [](shared_storage& self) { return self.with([](storage& s) { return s.raw_writable(); }); })
      .def("start_transfer", &start_transfer, nb::arg("ended"), nb::arg("number"), nb::arg("writes"),
           nb::arg("address"), nb::arg("size_bytes"), nb::arg("on_gpu"), nb::arg("offset_bytes"),
           nb::arg("stream").none(), nb::arg("extent").none(), nb::arg("staged").none())
      .def("cancel_transfers", [](shared_storage& self) { self.with([](storage& s) { s.cancel_transfers(); }); })
      .def("flush", [](shared_storage& self) { self.with([](storage& s) { s.flush(); }); })
      .def("extents",
           [](shared_storage& self) {
             return self.with([](storage& s) {
               json list = json::array();
               for (extent const& e : s.extents()) list.push_back(to_json(e));
               return list.dump();
             });
           })
      .def(
          "create_extent",
          [](shared_storage& self, std::string const& name, std::uint64_t bytes) {
            return self.with([&](storage& s) {
              return with_size_named([&] { return to_json(s.create_extent(name, bytes)).dump(); });
            });
          },
          nb::arg("name"), nb::arg("size_bytes"))
      .def(
          "stage_extent",
          [](shared_storage& self, std::string const& name, std::uint64_t bytes) {
            return self.with([&](storage& s) {
              extent const e = with_size_named([&] { return s.stage_extent(name, bytes); });
              return std::make_tuple(e.first_byte, e.size_bytes);
            });
          },
          nb::arg("name"), nb::arg("size_bytes"))
      .def(
          "publish_extent",
          [](shared_storage& self, std::string const& name, std::uint64_t first_byte, std::uint64_t bytes,
             bool replace) { self.with([&](storage& s) { s.publish_extent({name, first_byte, bytes}, replace); }); },
          nb::arg("name"), nb::arg("first_byte"), nb::arg("size_bytes"), nb::arg("replace"))
      .def(
          "discard_extent",
          [](shared_storage& self, std::string const& name, std::uint64_t first_byte, std::uint64_t bytes) {
            self.with([&](storage& s) { s.discard_extent({name, first_byte, bytes}); });
          },
          nb::arg("name"), nb::arg("first_byte"), nb::arg("size_bytes"))
      .def(
          "remove_extent",
          [](shared_storage& self, std::string const& name) { self.with([&](storage& s) { s.remove_extent(name); }); },
          nb::arg("name"))
      .def("reset_statistics", [](shared_storage& self) { self.with([](storage& s) { s.reset_statistics(); }); })
      .def("report", [](shared_storage& self) { return self.with([](storage& s) { return s.report(); }); })
      .def("close", &shared_storage::close);

  m.def("run_block_io", &run_block_io, nb::arg("storage"), nb::kw_only(), nb::arg("random"), nb::arg("read_percent"),
        nb::arg("block_bytes"), nb::arg("iodepth"), nb::arg("gpu_threads"), nb::arg("size_bytes"), nb::arg("runtime_s"),
        nb::arg("ramp_time_s"), nb::arg("seed"), nb::arg("verify"), nb::arg("lay_down"), nb::arg("tell"));
  m.def("run_file_io", &run_file_io, nb::arg("path"), nb::arg("engine"), nb::arg("gpu"), nb::kw_only(),
        nb::arg("random"), nb::arg("read_percent"), nb::arg("block_bytes"), nb::arg("iodepth"), nb::arg("gpu_threads"),
        nb::arg("size_bytes"), nb::arg("runtime_s"), nb::arg("ramp_time_s"), nb::arg("seed"), nb::arg("verify"),
        nb::arg("lay_down"), nb::arg("tell"));
  m.def("run_replay", &run_replay, nb::arg("storage"), nb::arg("operations"), nb::kw_only(), nb::arg("trace_name"),
        nb::arg("open_loop"), nb::arg("iodepth"), nb::arg("gpu_threads"), nb::arg("wrap"), nb::arg("verify"),
        nb::arg("seed"));
  m.def("run_bfs", &run_bfs, nb::arg("storage"), nb::arg("edges"), nb::arg("row_begin"), nb::arg("source"),
        nb::kw_only(), nb::arg("iodepth"), nb::arg("request_bytes"), nb::arg("tell"));
}
