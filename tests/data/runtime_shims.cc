// SPDX-License-Identifier: Apache-2.0
//
// Checks the headers of rpc/runtime_shims: against the wheel's own runtime where it has the same,
// else against what they promise. Prints "ok", or ends with a message.
#include <builtin_fp16.h>
#include <support/arena.h>
#include <support/base64.h>
#include <support/bytes_io.h>
#include <support/ring_buffer.h>
#include <support/utils.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <cstdio>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace tvm;           // NOLINT(build/namespaces)
using namespace tvm::support;  // NOLINT(build/namespaces)

runtime::Tensor Counting(int64_t rows, int64_t columns) {
  auto tensor =
      runtime::Tensor::Empty(ffi::Shape({rows, columns}), DLDataType{kDLFloat, 32, 1}, {kDLCPU, 0});
  for (int64_t i = 0; i < rows * columns; ++i) static_cast<float*>(tensor->data)[i] = 0.5f * i;
  return tensor;
}

/// The bytes of a file of parameters are the wheel's, in both directions.
void CheckLayout() {
  ffi::Map<ffi::String, runtime::Tensor> params;
  params.Set("weight", Counting(3, 5));
  const auto theirs =
      ffi::Function::GetGlobalRequired("runtime.SaveParams")(params).cast<ffi::Bytes>();
  std::string ours;
  BytesOutStream out(&ours);
  BytesInStream in(theirs);
  uint64_t head[2];
  TVM_FFI_ICHECK(in.ReadArray(head, 2));
  out.WriteArray(head, 2);
  std::vector<std::string> names;
  TVM_FFI_ICHECK(in.Read(&names));
  TVM_FFI_ICHECK(names == std::vector<std::string>{"weight"});
  out.Write(names);
  uint64_t count = 0;
  TVM_FFI_ICHECK(in.Read(&count));
  TVM_FFI_ICHECK_EQ(count, 1);
  out.Write(count);
  runtime::Tensor read;
  TVM_FFI_ICHECK(read.Load(&in));
  read.Save(&out);
  TVM_FFI_ICHECK(ours == std::string(theirs.data(), theirs.size()));
  TVM_FFI_ICHECK(!in.Read(&count));  // The end.
}

void CheckLists() {
  const ffi::Array<ffi::String> texts{"", "two", std::string(1000, 'x')};
  const ffi::Array<DLDataType> types{{kDLFloat, 16, 4}};
  std::string bytes;
  BytesOutStream out(&bytes);
  out.Write(texts);
  out.Write(types);
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::string part = bytes.substr(0, cut);
    BytesInStream in(part);
    ffi::Array<ffi::String> read_texts;
    ffi::Array<DLDataType> read_types;
    const bool whole = in.Read(&read_texts) && in.Read(&read_types);
    TVM_FFI_ICHECK_EQ(whole, cut == bytes.size());
    if (!whole) continue;
    TVM_FFI_ICHECK_EQ(read_texts.size(), 3);
    TVM_FFI_ICHECK(read_texts[2] == texts[2]);
    TVM_FFI_ICHECK(read_types[0].bits == 16 && read_types[0].lanes == 4);
  }
}

void CheckBase64() {
  for (size_t size = 0; size < 10000; size = 2 * size + 1) {
    std::string text;
    BytesOutStream text_out(&text);
    Base64OutStream out(&text_out);
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(7 * i);
    out.Write(static_cast<const void*>(bytes.data()), size);
    out.Finish();
    BytesInStream text_in(text);
    Base64InStream in(&text_in);
    in.InitPosition();
    std::string back(size + 1, '\0');
    TVM_FFI_ICHECK_EQ(in.Read(static_cast<void*>(back.data()), size + 1), size);
    TVM_FFI_ICHECK(back.substr(0, size) == bytes);
  }
}

/// A ring buffer is a queue, whatever the order and sizes of reads and writes.
void CheckRing() {
  std::mt19937 random(1);
  RingBuffer ring;
  std::deque<char> queue;
  char next = 0;
  for (int step = 0; step < 20000; ++step) {
    const size_t most = random() % (step % 100 == 0 ? 3000000 : 5000);
    const size_t done = most == 0 ? 0 : random() % (most + 1);
    const auto fill = [&](char* to, size_t size) {
      for (size_t i = 0; i < size; ++i) queue.push_back(to[i] = next++);
      return size;
    };
    const auto check = [&](const char* from, size_t size) {
      for (size_t i = 0; i < size; ++i) {
        TVM_FFI_ICHECK(from[i] == queue.front());
        queue.pop_front();
      }
      return size;
    };
    switch (random() % 4) {
      case 0: {
        std::vector<char> bytes(most);
        ring.Write(bytes.data(), fill(bytes.data(), most));
        break;
      }
      case 1: {
        std::vector<char> bytes(std::min(most, queue.size()));
        ring.Read(bytes.data(), bytes.size());
        check(bytes.data(), bytes.size());
        break;
      }
      case 2:
        if (random() % 2 == 0) ring.Reserve(most);
        ring.WriteWithCallback([&](void* to, size_t size) {
          TVM_FFI_ICHECK_EQ(size, most);
          return fill(static_cast<char*>(to), done);
        }, most);
        break;
      default:
        ring.ReadWithCallback([&](const void* from, size_t size) {
          return check(static_cast<const char*>(from), std::min(size, done));
        }, most);
    }
    TVM_FFI_ICHECK_EQ(ring.bytes_available(), queue.size());
  }
}

void CheckArena() {
  Arena arena;
  for (int round = 0; round < 3; ++round) {
    std::vector<char*> taken;
    for (size_t size = round == 1 ? 100000 : 1; size < 200000; size = size * 3 + 1) {
      taken.push_back(arena.allocate_<char>(size));
      std::memset(taken.back(), static_cast<int>(taken.size()), size);
      auto* number = arena.allocate_<double>();
      TVM_FFI_ICHECK_EQ(reinterpret_cast<uintptr_t>(number) % alignof(double), 0);
      *number = 1;
    }
    for (size_t i = 0; i < taken.size(); ++i) TVM_FFI_ICHECK_EQ(*taken[i], static_cast<int>(i + 1));
    arena.RecycleAll();
  }
}

/// One line a value: its bits in half precision and what becomes of it, for Python to check.
void PrintHalves() {
  for (uint32_t half = 0; half < 65536; ++half) {
    const float wide = __extendXfYf2__<uint16_t, uint16_t, 10, float, uint32_t, 23>(
        static_cast<uint16_t>(half));
    std::printf("%u %u\n", half, autotune::SameBits<uint32_t>(wide));
  }
  std::mt19937 random(2);
  for (int i = 0; i < 200000; ++i) {
    // Exponents around those of half precision, and fractions near the middle of two halves.
    uint32_t bits = random() & 0x807fffffu;
    if (i % 2 == 0) bits = (bits & 0xffffe000u) | (0x1000u + static_cast<uint32_t>(i / 2 % 3) - 1);
    bits |= (i % 50 == 0 ? 255u : 95 + random() % 60) << 23;
    const auto narrow = autotune::SameBits<float>(bits);
    const double wide = narrow;
    std::printf("%u %u %u\n", bits,
                unsigned{__truncXfYf2__<float, uint32_t, 23, uint16_t, uint16_t, 10>(narrow)},
                unsigned{__truncXfYf2__<double, uint64_t, 52, uint16_t, uint16_t, 10>(wide)});
  }
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) {
    PrintHalves();
    return 0;
  }
  CheckLayout();
  CheckLists();
  CheckBase64();
  CheckRing();
  CheckArena();
  TVM_FFI_ICHECK(StartsWith("RPCError: x", "RPCError: ") && !StartsWith("RPC", "RPCError: "));
  TVM_FFI_ICHECK(IsNumber("12") && !IsNumber("") && !IsNumber("-1") && !IsNumber("1a"));
  std::puts("ok");
  return 0;
}
