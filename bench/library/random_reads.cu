// SPDX-License-Identifier: Apache-2.0
#include "forebay/error.hpp"
#include "forebay/queue_rules.hpp"
#include "harness/gpu_use.hpp"
#include "library/random_reads.hpp"

namespace forebay::bench {
namespace {

struct serviced : uncached {
  using queue_rules = service_rules;
};

/// Calls `with` with the reader of that kind, and the traits of its ref.
template <class With>
auto for_kind(reader_kind kind, With&& with) {
  if (kind.serviced) {
    if (kind.open != 1) throw refused_input("open", std::to_string(kind.open), "use 1 with a service");
    return with(library_reader<simt::cuda, 1, serviced>{}, serviced());
  }
  switch (kind.open) {
    case 1:
      return with(library_reader<simt::cuda, 1>{}, uncached());
    case 2:
      return with(library_reader<simt::cuda, 2>{}, uncached());
    case 4:
      return with(library_reader<simt::cuda, 4>{}, uncached());
    default:
      throw refused_input("open", std::to_string(kind.open), "use 1, 2 or 4");
  }
}

}  // namespace

kernel_shape library_reader_shape(reader_kind kind, std::uint32_t threads_per_block) {
  return for_kind(kind, [&]<class Reader, class Traits>(Reader const&, Traits) {
    launch_report::gpu_use const use = gpu_use_of<Reader>(threads_per_block);
    return kernel_shape{use.registers_per_thread, use.local_bytes_per_thread,
                        use.resident_blocks_per_sm * threads_per_block};
  });
}

void launch_library_reader(simt::grid const& shape, storage const& drives, buffer_ref const& buffers,
                           raw_workload const& work, reader_kind kind, library_result* result, cudaStream_t stream) {
  for_kind(kind, [&]<class Reader, class Traits>(Reader reader, Traits) {
    reader.storage = drives.ref<simt::cuda, Traits>();
    reader.buffers = buffers;
    reader.work = work;
    reader.result = result;
    simt::launch<simt::cuda>(shape, reader, stream);
  });
}

void launch_library_service(simt::grid const& shape, storage const& drives, std::uint32_t* stop, cudaStream_t stream) {
  simt::launch<simt::cuda>(shape, drives.service<simt::cuda>(stop), stream);
}

void launch_library_writer(simt::grid const& shape, storage const& drives, buffer_ref const& buffers,
                           library_result* result, cudaStream_t stream) {
  simt::launch<simt::cuda>(shape, library_writer<simt::cuda>{drives.ref<simt::cuda>(), buffers, result}, stream);
}

}  // namespace forebay::bench
