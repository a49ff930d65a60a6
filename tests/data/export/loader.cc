// SPDX-License-Identifier: Apache-2.0
//
// Opens an OpenCL export and prints what the loader says: loader FOLDER KERNEL [key=value...], with the keys variant,
// soc, cluster, cache, operands (fewer than there are), bytes (of every buffer), order (any for an out-of-order queue)
// and times. Prints "ok VARIANT compiled=N cached=N" or "error CODE TEXT".
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "autotune_opencl.hpp"

namespace cl = autotune_opencl;

int Say(const cl::Status& status) {
  std::printf("error %d %s\n", static_cast<int>(status.code), status.text.c_str());
  return 0;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  cl::Options options;
  size_t operands = 1000, bytes = 0;
  int times = 1;
  bool any_order = false;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string key = word.substr(0, word.find('=')), value = word.substr(word.find('=') + 1);
    if (key == "variant") options.variant = value;
    if (key == "soc") options.soc = value;
    if (key == "cluster") options.cluster = value;
    if (key == "cache") options.cache_folder = value;
    if (key == "operands") operands = std::stoul(value);
    if (key == "bytes") bytes = std::stoul(value);
    if (key == "times") times = std::stoi(value);
    if (key == "order") any_order = value == "any";
  }
  std::unique_ptr<cl::Session> session;
  if (const cl::Status status = cl::Session::Open(&session); !status.ok()) return Say(status);
  std::unique_ptr<cl::Library> library;
  const cl::Status opened = cl::Library::Open(argv[1], session->context, session->device, options, &library);
  if (!opened.ok()) return Say(opened);
  if (std::strcmp(argv[2], "-") == 0) {
    std::printf("chosen %s for %s, %s\n", library->variant().c_str(), library->device().name.c_str(),
                library->device().driver.c_str());
    return 0;
  }
  const cl::KernelInfo* kernel = library->Find(argv[2]);
  std::vector<cl_mem> buffers;
  for (size_t i = 0; kernel != nullptr && i < kernel->operands.size() && i < operands; ++i) {
    const size_t size = bytes != 0 ? bytes : kernel->operands[i].bytes;
    buffers.push_back(session->api.clCreateBuffer(session->context, CL_MEM_READ_WRITE, size, nullptr, nullptr));
  }
  cl_command_queue queue = session->queue;
  if (any_order) {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    queue = session->api.clCreateCommandQueue(session->context, session->device,
                                              CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, nullptr);
  }
  for (int i = 0; i < times; ++i) {
    const cl::Status status = library->Enqueue(argv[2], queue, buffers.data(), buffers.size());
    if (!status.ok()) return Say(status);
  }
  session->api.clFinish(queue);
  std::printf("ok %s compiled=%zu cached=%zu\n", library->VariantOf(argv[2]).c_str(), library->compiled(),
              library->cached());
  for (cl_mem buffer : buffers) session->api.clReleaseMemObject(buffer);
  return 0;
}
