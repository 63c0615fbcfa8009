// SPDX-License-Identifier: Apache-2.0
#include "library/spmv_cusparse.hpp"

#include <string>

#include "apps/common/shared_library.hpp"
#include "forebay/error.hpp"

// The toolkit's header is not needed to build: these few declarations are of cuSPARSE 12's interface
// (libcusparse.so.12, CUDA 12 and 13; cuSPARSE documentation, "Generic API"). If the header is available, the
// declarations are compared with it.
#if __has_include(<cusparse.h>)
#include <cusparse.h>
static_assert(CUSPARSE_OPERATION_NON_TRANSPOSE == 0 && CUSPARSE_INDEX_32I == 2 && CUSPARSE_INDEX_BASE_ZERO == 0 &&
              CUDA_R_32F == 0 && CUSPARSE_SPMV_CSR_ALG1 == 2 && CUSPARSE_SPMV_CSR_ALG2 == 3);
#endif

namespace forebay::bench {

namespace {

constexpr int non_transpose = 0, index_32i = 2, index_base_zero = 0, real_32f = 0;

/// Enumerations and statuses are ints, handles and descriptors pointers.
struct api {
  apps::shared_library library{"libcusparse.so.12"};
  using destroy = int(void const*);
  using multiply = int(void*, int, void const*, void const*, void const*, void const*, void*, int, int, void*);
  int (*get_version)(void*, int*) = library.get<int(void*, int*)>("cusparseGetVersion");
  int (*create)(void**) = library.get<int(void**)>("cusparseCreate");
  int (*destroy_handle)(void*) = library.get<int(void*)>("cusparseDestroy");
  int (*set_stream)(void*, cudaStream_t) = library.get<int(void*, cudaStream_t)>("cusparseSetStream");
  char const* (*error_string)(int) = library.get<char const*(int)>("cusparseGetErrorString");
  using create_csr_type = int(void**, std::int64_t, std::int64_t, std::int64_t, void*, void*, void*, int, int, int,
                              int);
  create_csr_type* create_csr = library.get<create_csr_type>("cusparseCreateCsr");
  destroy* destroy_matrix = library.get<destroy>("cusparseDestroySpMat");
  int (*create_vector)(void**, std::int64_t, void*,
                       int) = library.get<int(void**, std::int64_t, void*, int)>("cusparseCreateDnVec");
  destroy* destroy_vector = library.get<destroy>("cusparseDestroyDnVec");
  using size_type = int(void*, int, void const*, void const*, void const*, void const*, void*, int, int, std::size_t*);
  size_type* buffer_size = library.get<size_type>("cusparseSpMV_bufferSize");
  multiply* preprocess = library.get<multiply>("cusparseSpMV_preprocess");
  multiply* spmv = library.get<multiply>("cusparseSpMV");

  void check(int status, char const* what) const {
    if (status != 0) throw operation_failed(std::string(what) + ": " + error_string(status));
  }
};

api const& cusparse() {
  static api const loaded;
  return loaded;
}

}  // namespace

struct cusparse_spmv::impl {
  api const& library = cusparse();
  void* handle = nullptr;
  void* matrix = nullptr;
  void* x = nullptr;
  void* y = nullptr;
  int algorithm = 0;
  float one = 1, zero = 0;
  memory::allocation workspace;

  ~impl() {
    if (y != nullptr) library.destroy_vector(y);
    if (x != nullptr) library.destroy_vector(x);
    if (matrix != nullptr) library.destroy_matrix(matrix);
    if (handle != nullptr) library.destroy_handle(handle);
  }
};

cusparse_spmv::cusparse_spmv(cudaStream_t stream, memory::resource& workspace_from, cusparse_matrix const& a,
                             float const* x, float* y, cusparse_algorithm algorithm)
    : impl_(std::make_unique<impl>()) {
  impl& i = *impl_;
  api const& l = i.library;
  i.algorithm = algorithm == cusparse_algorithm::csr_1 ? 2 : 3;
  l.check(l.create(&i.handle), "cusparseCreate");
  l.check(l.set_stream(i.handle, stream), "cusparseSetStream");
  // The interface takes no pointers to const; it writes to none of them but y.
  l.check(l.create_csr(&i.matrix, a.rows, a.rows, a.entries, const_cast<std::int32_t*>(a.row_begin),
                       const_cast<std::uint32_t*>(a.columns), const_cast<float*>(a.values), index_32i, index_32i,
                       index_base_zero, real_32f),
          "cusparseCreateCsr");
  l.check(l.create_vector(&i.x, a.rows, const_cast<float*>(x), real_32f), "cusparseCreateDnVec");
  l.check(l.create_vector(&i.y, a.rows, y, real_32f), "cusparseCreateDnVec");
  std::size_t bytes = 0;
  l.check(l.buffer_size(i.handle, non_transpose, &i.one, i.matrix, i.x, &i.zero, i.y, real_32f, i.algorithm, &bytes),
          "cusparseSpMV_bufferSize");
  i.workspace = memory::allocation(workspace_from, bytes == 0 ? 1 : bytes, 256);
  l.check(l.preprocess(i.handle, non_transpose, &i.one, i.matrix, i.x, &i.zero, i.y, real_32f, i.algorithm,
                       i.workspace.data()),
          "cusparseSpMV_preprocess");
}

cusparse_spmv::~cusparse_spmv() = default;

void cusparse_spmv::operator()() const {
  impl const& i = *impl_;
  i.library.check(i.library.spmv(i.handle, non_transpose, &i.one, i.matrix, i.x, &i.zero, i.y, real_32f, i.algorithm,
                                 i.workspace.data()),
                  "cusparseSpMV");
}

int cusparse_spmv::version() {
  void* handle = nullptr;
  int version = 0;
  api const& l = cusparse();
  l.check(l.create(&handle), "cusparseCreate");
  l.check(l.get_version(handle, &version), "cusparseGetVersion");
  l.check(l.destroy_handle(handle), "cusparseDestroy");
  return version;
}

}  // namespace forebay::bench
