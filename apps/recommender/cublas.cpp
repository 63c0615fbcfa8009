// SPDX-License-Identifier: Apache-2.0
#include "apps/recommender/cublas.hpp"

#include <string>

#include "apps/common/shared_library.hpp"
#include "forebay/error.hpp"

// The toolkit's header is not needed to build: these few declarations are of cuBLAS 13's interface (libcublas.so.13;
// cuBLAS documentation, "Using the cuBLAS API"). If the header is available, the declarations are compared with it.
#if __has_include(<cublas_api.h>)
#include <cublas_api.h>
static_assert(CUBLAS_OP_N == 0 && CUBLAS_OP_T == 1 && CUBLAS_DEFAULT_MATH == 0 && CUBLAS_TF32_TENSOR_OP_MATH == 3);
#endif

namespace forebay::recommender {

namespace {

constexpr int no = 0, transposed = 1;
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // what cuBLAS recommends for Hopper

/// Enumerations and statuses are ints, handles pointers.
struct api {
  apps::shared_library library{"libcublas.so.13"};
  using create_type = int(void**);
  using destroy_type = int(void*);
  using version_type = int(void*, int*);
  using stream_type = int(void*, cudaStream_t);
  using math_type = int(void*, int);
  using workspace_type = int(void*, void*, std::size_t);
  using text_type = char const*(int);
  using sgemm_type = int(void*, int, int, int, int, int, float const*, float const*, int, float const*, int,
                         float const*, float*, int);
  using batched_type = int(void*, int, int, int, int, int, float const*, float const*, int, long long, float const*,
                           int, long long, float const*, float*, int, long long, int);
  create_type* create = library.get<create_type>("cublasCreate_v2");
  destroy_type* destroy = library.get<destroy_type>("cublasDestroy_v2");
  version_type* get_version = library.get<version_type>("cublasGetVersion_v2");
  stream_type* set_stream = library.get<stream_type>("cublasSetStream_v2");
  math_type* set_math_mode = library.get<math_type>("cublasSetMathMode");
  workspace_type* set_workspace = library.get<workspace_type>("cublasSetWorkspace_v2");
  text_type* status_string = library.get<text_type>("cublasGetStatusString");
  sgemm_type* sgemm = library.get<sgemm_type>("cublasSgemm_v2");
  batched_type* sgemm_batched = library.get<batched_type>("cublasSgemmStridedBatched");

  void check(int status, char const* what) const {
    if (status != 0) throw operation_failed(std::string(what) + ": " + status_string(status));
  }
};

api const& cublas() {
  static api const loaded;
  return loaded;
}

}  // namespace

struct dlrm_cublas::impl {
  api const& library = cublas();
  void* handle = nullptr;
  memory::allocation workspace;
  float one = 1, zero = 0;

  ~impl() {
    if (handle != nullptr) library.destroy(handle);
  }
};

dlrm_cublas::dlrm_cublas(cudaStream_t stream, memory::resource& workspace_from, cublas_math math)
    : impl_(std::make_unique<impl>()) {
  impl& i = *impl_;
  api const& l = i.library;
  i.workspace = memory::allocation(workspace_from, workspace_bytes, 256);
  l.check(l.create(&i.handle), "cublasCreate");
  l.check(l.set_stream(i.handle, stream), "cublasSetStream");  // which forgets the workspace
  l.check(l.set_workspace(i.handle, i.workspace.data(), workspace_bytes), "cublasSetWorkspace");
  l.check(l.set_math_mode(i.handle, math == cublas_math::tf32 ? 3 : 0), "cublasSetMathMode");
}

dlrm_cublas::~dlrm_cublas() = default;

// cuBLAS' matrices are column-major, so it takes each of our matrices as its transpose. It is therefore asked for
// transpose(y) = transpose(w) * transpose(x).
void dlrm_cublas::multiply(float const* x, float const* w, float* y, std::uint32_t samples, std::uint32_t inputs,
                           std::uint32_t outputs, std::uint32_t stride) const {
  impl const& i = *impl_;
  auto const m = static_cast<int>(outputs), n = static_cast<int>(samples), k = static_cast<int>(inputs);
  i.library.check(i.library.sgemm(i.handle, no, no, m, n, k, &i.one, w, m, x, k, &i.zero, y, static_cast<int>(stride)),
                  "cublasSgemm");
}

void dlrm_cublas::gram(float const* vector, float* products, std::uint32_t samples, std::uint32_t vectors,
                       std::uint32_t floats) const {
  impl const& i = *impl_;
  auto const n = static_cast<int>(vectors), k = static_cast<int>(floats);
  long long const apart = static_cast<long long>(n) * k, products_apart = static_cast<long long>(n) * n;
  i.library.check(i.library.sgemm_batched(i.handle, transposed, no, n, n, k, &i.one, vector, k, apart, vector, k, apart,
                                          &i.zero, products, n, products_apart, static_cast<int>(samples)),
                  "cublasSgemmStridedBatched");
}

int dlrm_cublas::version() const {
  int version = 0;
  impl_->library.check(impl_->library.get_version(impl_->handle, &version), "cublasGetVersion");
  return version;
}

}  // namespace forebay::recommender
