// SPDX-License-Identifier: Apache-2.0
//
// Prints which images a loader chooses on devices with such limits: the widths of a kernel's images, "flat" for those of
// one dimension, or "buffers".
#include <cstdio>
#include <string>
#include <vector>

#include "autotune_opencl.hpp"

namespace cl = autotune_opencl::internal;

static bool has_formats = true;

struct Driver {
  static cl_int Formats(cl_context, cl_mem_flags, cl_mem_object_type, cl_uint, cl_image_format* formats, cl_uint* count) {
    formats[0] = {CL_RGBA, CL_FLOAT};
    formats[1] = {CL_R, CL_FLOAT};
    *count = has_formats ? 2 : 0;
    return CL_SUCCESS;
  }
  decltype(&Formats) clGetSupportedImageFormats = &Formats;
};

static void Show(const char* what, const std::vector<size_t>& texels, const cl::ImageLimits& limits, size_t channels = 4) {
  cl::ImageArguments images;
  for (const size_t one : texels) images.push_back({images.size(), channels, one, 0});
  const cl::ImageArguments found = cl::FittedImages(Driver(), nullptr, images, limits);
  std::printf("%s:", what);
  if (found.empty()) std::printf(" buffers");
  for (const cl::ImageArgument& one : found) {
    if (one.width == 0) std::printf(" flat");
    if (one.width != 0) std::printf(" %zux%zu", one.width, one.texels / one.width);
  }
  std::printf("\n");
}

int main() {
  const cl::ImageLimits phone{65536, {16384, 16384}, 64};
  Show("short", {9216, 65536}, phone);
  Show("one is long", {9216, 401408}, phone);
  Show("alone and long", {401408}, phone);
  Show("as wide as allowed", {size_t{1} << 24}, phone);
  Show("too high", {size_t{64} * 16385}, phone);
  Show("as high as allowed", {size_t{64} * 16383, 64}, phone);
  Show("no row that all have", {288, 6422528}, phone);
  Show("odd", {65537}, phone);
  Show("a pitch that no row has", {401408}, {65536, {16384, 16384}, 48});
  Show("no images of rows", {401408}, {65536, {16384, 16384}, 0});
  Show("no images", {64}, {0, {0, 0}, 0});
  Show("only images of rows", {64}, {0, {16384, 16384}, 64});
  Show("two channels, which no format has", {64}, phone, 2);
  Show("two channels and long", {401408}, phone, 2);
  Show("none", {}, phone);
  Show("rows were refused", {401408}, cl::WithoutRefused(phone, {{0, 4, 401408, 8192}}));
  Show("rows were refused, short", {64}, cl::WithoutRefused(phone, {{0, 4, 401408, 8192}}));
  Show("flat ones were refused", {64}, cl::WithoutRefused(phone, {{0, 4, 64, 0}}));
  has_formats = false;
  Show("no formats", {64}, phone);
  Show("no formats, long", {401408}, phone);
}
