// SPDX-License-Identifier: Apache-2.0
//
// Opens an OpenCL export and prints what the loader says: loader FOLDER KERNEL [key=value...], with the keys variant,
// soc, cluster, cache, cache_bytes, operands (fewer than there are), bytes (of every buffer), host (bytes behind a
// multiple of 64 at which buffers in memory of this program begin), order (any for an out-of-order queue), times,
// threads, each with a queue of its own, and spoil (a source file that is damaged once the kernel was made).
// Prints "ok VARIANT compiled=N cached=N" or "error CODE TEXT".
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
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
  long host = -1;
  int times = 1, threads = 1;
  bool any_order = false;
  std::string spoilt;
  for (int i = 3; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string key = word.substr(0, word.find('=')), value = word.substr(word.find('=') + 1);
    if (key == "variant") options.variant = value;
    if (key == "soc") options.soc = value;
    if (key == "cluster") options.cluster = value;
    if (key == "cache") options.cache_folder = value;
    if (key == "cache_bytes") options.cache_bytes = std::stoul(value);
    if (key == "operands") operands = std::stoul(value);
    if (key == "bytes") bytes = std::stoul(value);
    if (key == "host") host = std::stol(value);
    if (key == "times") times = std::stoi(value);
    if (key == "threads") threads = std::stoi(value);
    if (key == "order") any_order = value == "any";
    if (key == "spoil") spoilt = value;
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
    void* memory = host < 0 ? nullptr : static_cast<char*>(std::aligned_alloc(64, (size + 127) / 64 * 64)) + host;
    const cl_mem_flags flags = CL_MEM_READ_WRITE | (host < 0 ? 0 : CL_MEM_USE_HOST_PTR);
    buffers.push_back(session->api.clCreateBuffer(session->context, flags, size, memory, nullptr));
  }
  cl_command_queue queue = session->queue;
  if (any_order) {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    queue = session->api.clCreateCommandQueue(session->context, session->device,
                                              CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, nullptr);
  }
  std::vector<cl::Status> statuses(static_cast<size_t>(threads));
  const auto work = [&](size_t number, cl_command_queue own) {
    for (int i = 0; i < times && statuses[number].ok(); ++i) {
      statuses[number] = library->Enqueue(argv[2], own, buffers.data(), buffers.size());
    }
    session->api.clFinish(own);
  };
  if (!spoilt.empty()) {  // After the kernel was made; and whatever its first launch came to.
    library->Prepare(argv[2]);
    std::ofstream(spoilt, std::ios::app) << "{";
    library->Enqueue(argv[2], queue, buffers.data(), buffers.size());
  }
  std::vector<std::thread> others;
  for (size_t i = 1; i < statuses.size(); ++i) {
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    others.emplace_back(work, i, session->api.clCreateCommandQueue(session->context, session->device, 0, nullptr));
  }
  work(0, queue);
  for (std::thread& other : others) other.join();
  for (const cl::Status& status : statuses) {
    if (!status.ok()) return Say(status);
  }
  std::printf("ok %s compiled=%zu cached=%zu\n", library->VariantOf(argv[2]).c_str(), library->compiled(),
              library->cached());
  for (cl_mem buffer : buffers) session->api.clReleaseMemObject(buffer);
  return 0;
}
