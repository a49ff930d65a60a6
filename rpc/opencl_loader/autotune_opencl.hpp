// SPDX-License-Identifier: Apache-2.0
//
// Runs the kernels of an OpenCL export (`autotune export --format opencl`) in an engine's own context and queues, without
// TVM. One header, C++17, the C++ standard library and CL/cl.h; no exceptions, no RTTI.
//
//   std::unique_ptr<autotune_opencl::Library> library;
//   autotune_opencl::Status status = autotune_opencl::Library::Open("kernels", context, device, {}, &library);
//   if (status.ok()) status = library->Enqueue("matmul_forward_m8n24k40", queue, {a, b, c});
//
// OpenCL is opened by dlopen, so a program starts where there is none. Define AUTOTUNE_OPENCL_LINK to call a linked
// libOpenCL instead, or pass an engine's own table of functions in Options::api. Define AUTOTUNE_OPENCL_MORE_CALLS(X)
// as X(clFlush) X(...) to have further functions in the table.
#ifndef AUTOTUNE_OPENCL_HPP_
#define AUTOTUNE_OPENCL_HPP_

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#ifndef AUTOTUNE_OPENCL_LINK
#include <dlfcn.h>
#endif
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace autotune_opencl {

enum class Code {
  kOk = 0,
  kFile,      ///< A file of the export is missing or damaged.
  kNoOpenCl,  ///< No OpenCL library, or no device.
  kUnknown,   ///< There is no such kernel or variant.
  kLimits,    ///< The device allows less than the kernel needs.
  kBuild,     ///< The driver does not compile the kernel.
  kArgument,  ///< Wrong number of operands, a buffer that is missing, too small or unaligned, or a queue out of order.
  kOpenCl,    ///< An OpenCL function failed.
};

struct Status {
  Code code = Code::kOk;
  std::string text;  ///< What is wrong, where, and with what; empty where nothing is.
  bool ok() const { return code == Code::kOk; }
};

#ifndef AUTOTUNE_OPENCL_MORE_CALLS
#define AUTOTUNE_OPENCL_MORE_CALLS(X)
#endif

// What is called of OpenCL.
#define AUTOTUNE_OPENCL_CALLS(X)                                                                     \
  X(clBuildProgram) X(clCreateBuffer) X(clCreateCommandQueue) X(clCreateContext) X(clCreateImage) X(clCreateKernel) \
  X(clCreateProgramWithBinary) X(clCreateProgramWithSource) X(clEnqueueNDRangeKernel)                \
  X(clEnqueueReadBuffer) X(clEnqueueWriteBuffer) X(clFinish) X(clGetCommandQueueInfo)                \
  X(clGetDeviceIDs) X(clGetDeviceInfo) X(clGetEventInfo) X(clGetKernelWorkGroupInfo) X(clGetMemObjectInfo) \
  X(clGetPlatformIDs) X(clGetPlatformInfo) X(clGetProgramBuildInfo) X(clGetProgramInfo) X(clGetSupportedImageFormats) \
  X(clReleaseCommandQueue) X(clReleaseContext) X(clReleaseEvent) X(clReleaseKernel) X(clReleaseMemObject) \
  X(clReleaseProgram) X(clRetainContext) X(clRetainEvent) X(clSetKernelArg) X(clWaitForEvents)       \
  AUTOTUNE_OPENCL_MORE_CALLS(X)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
/// OpenCL's functions, each under its own name.
struct Api {
#define AUTOTUNE_OPENCL_DECLARE(name) decltype(&::name) name = nullptr;
  AUTOTUNE_OPENCL_CALLS(AUTOTUNE_OPENCL_DECLARE)
#undef AUTOTUNE_OPENCL_DECLARE
};

namespace internal {

#ifndef AUTOTUNE_OPENCL_LINK
/// Fills the table from a library; says what is missing.
inline std::string Fill(void* handle, Api* api) {
  // Pixel phones hide the functions behind two of their own.
  auto enable = reinterpret_cast<void (*)()>(dlsym(handle, "enableOpenCL"));
  auto load = reinterpret_cast<void* (*)(const char*)>(dlsym(handle, "loadOpenCLPointer"));
  if (enable != nullptr && load != nullptr) enable();
#define AUTOTUNE_OPENCL_FIND(name)                                                           \
  api->name = reinterpret_cast<decltype(&::name)>(load ? load(#name) : dlsym(handle, #name)); \
  if (api->name == nullptr) return "has no " #name;
  AUTOTUNE_OPENCL_CALLS(AUTOTUNE_OPENCL_FIND)
#undef AUTOTUNE_OPENCL_FIND
  return "";
}
#endif

struct Loaded {
  Api api;
  std::string reason;  ///< Why there is no OpenCL; empty where there is.
};

inline Loaded* Load() {
  auto* loaded = new Loaded;
#ifdef AUTOTUNE_OPENCL_LINK
#define AUTOTUNE_OPENCL_TAKE(name) loaded->api.name = &::name;
  AUTOTUNE_OPENCL_CALLS(AUTOTUNE_OPENCL_TAKE)
#undef AUTOTUNE_OPENCL_TAKE
#else
  std::vector<std::string> names = {"libOpenCL.so.1",
                                    "libOpenCL.so",
                                    "libOpenCL-pixel.so",
                                    "libGLES_mali.so",
                                    "/vendor/lib64/libOpenCL.so",
                                    "/vendor/lib64/libOpenCL-pixel.so",
                                    "/vendor/lib64/libGLES_mali.so",
                                    "/vendor/lib64/egl/libGLES_mali.so",
                                    "/system/vendor/lib64/libOpenCL.so"};
  if (const char* chosen = std::getenv("AUTOTUNE_OPENCL_LIBRARY")) names = {chosen};
  std::string tried;
  for (const std::string& name : names) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    const std::string missing = handle != nullptr ? Fill(handle, &loaded->api) : "";
    if (handle != nullptr && missing.empty()) return loaded;
    tried += (tried.empty() ? "" : ", ") + name + (missing.empty() ? "" : " (" + missing + ")");
    if (handle != nullptr) dlclose(handle);
  }
  loaded->reason = "no OpenCL library (tried " + tried +
                   "); Android apps name it in <uses-native-library>, Debian has it in ocl-icd-libopencl1";
#endif
  return loaded;
}

}  // namespace internal

/// OpenCL as this process finds it; the search is made once. Null where there is none, with the reason in `why`.
inline const Api* FindApi(std::string* why = nullptr) {
  static const internal::Loaded* loaded = internal::Load();  // Never freed: drivers run until the process ends.
  if (loaded->reason.empty()) return &loaded->api;
  if (why != nullptr) *why = loaded->reason;
  return nullptr;
}

/// An OpenCL error code by its name, with what to do about it where that is known.
inline std::string ErrorText(cl_int code) {
  struct Known {
    cl_int code;
    const char* text;
  };
  static const Known kKnown[] = {
      {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE: another program may hold the GPU"},
      {CL_MEM_OBJECT_ALLOCATION_FAILURE,
       "CL_MEM_OBJECT_ALLOCATION_FAILURE: too little memory is free on the device; take a smaller batch"},
      {CL_OUT_OF_RESOURCES,
       "CL_OUT_OF_RESOURCES: a kernel needs more than the device has, or was stopped; tune and export for this device"},
      {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY: too little memory is free; take a smaller batch"},
      {CL_INVALID_CONTEXT, "CL_INVALID_CONTEXT: all objects must be of the context that the library was opened for"},
      {CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE: it was released, or is of another context"},
      {CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT: it was released, or is of another context"},
      {CL_INVALID_WORK_GROUP_SIZE,
       "CL_INVALID_WORK_GROUP_SIZE: the device runs smaller work groups of this kernel; tune and export for this device"},
      {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE: more than one buffer may have there; take a smaller batch"},
  };
  for (const Known& known : kKnown) {
    if (known.code == code) return std::string(known.text) + " (OpenCL error " + std::to_string(code) + ")";
  }
  return "OpenCL error " + std::to_string(code);
}

/// What is asked of a device before anything is built for it.
struct DeviceInfo {
  std::string name, vendor, version, driver, platform, extensions;
  size_t max_work_group_size = 0;
  std::array<size_t, 3> max_work_item_sizes{{0, 0, 0}};
  uint64_t local_memory_bytes = 0;
  uint64_t max_buffer_bytes = 0;
  bool images = false;
  uint64_t image_buffer_max = 0;               ///< Texels of a one-dimensional image over a buffer.
  std::array<size_t, 2> image2d_max = {0, 0};  ///< Width and height of a two-dimensional one.
  /// What the rows of a two-dimensional image over a buffer are multiples of, in texels; 0 where there are none such.
  size_t image_pitch_alignment = 0;
};

struct Operand {
  std::string name;
  std::string type;  ///< "float32" or "int32".
  std::vector<int64_t> shape;
  size_t bytes = 0;
  bool is_output = false;
};

/// A kernel in words and shapes.
struct KernelInfo {
  std::string name, role, specification;
  std::vector<Operand> operands;  ///< Inputs, then outputs; that is how Enqueue takes them.
};

/// How a library is opened; every field may stay as it is.
struct Options {
  std::string variant;       ///< By name, instead of the choice below; nothing else is fallen back to then.
  std::string soc;           ///< The chip's name, such as Android's ro.soc.model.
  std::string cluster;       ///< The cores that the engine runs on, if the export has variants by cluster.
  std::string cache_folder;  ///< Keeps compiled programs; made if it is missing. Empty: nothing is kept.
  uint64_t cache_bytes = uint64_t{256} << 20;  ///< So much of them at most, those that were used last.
  const Api* api = nullptr;  ///< Null: FindApi().
};

namespace internal {

/// A JSON value. Numbers are kept as they are written.
struct Json {
  enum Kind { kNull, kBool, kNumber, kString, kList, kObject } kind = kNull;
  bool truth = false;
  std::string text;
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> members;

  const Json& operator[](const char* key) const {
    static const Json none;
    for (const auto& [name, value] : members) {
      if (name == key) return value;
    }
    return none;
  }
  uint64_t number() const { return kind == kNumber ? std::strtoull(text.c_str(), nullptr, 10) : 0; }
};

class JsonReader {
 public:
  explicit JsonReader(const std::string& text) : at_(text.c_str()), end_(at_ + text.size()) {}

  bool Read(Json* value) {
    if (!Value(value, 0)) return false;
    Space();
    return at_ == end_;
  }

 private:
  static constexpr int kDeepest = 32;

  void Space() {
    while (at_ != end_ && std::strchr(" \t\r\n", *at_) != nullptr && *at_ != '\0') ++at_;
  }
  bool Take(char wanted) {
    Space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }
  bool Word(const char* word) {
    const size_t size = std::strlen(word);
    if (static_cast<size_t>(end_ - at_) < size || std::strncmp(at_, word, size) != 0) return false;
    at_ += size;
    return true;
  }
  bool Text(std::string* text) {
    if (!Take('"')) return false;
    for (; at_ != end_ && *at_ != '"'; ++at_) {
      if (*at_ != '\\') {
        *text += *at_;
        continue;
      }
      if (++at_ == end_) return false;
      if (*at_ == 'u') {  // Names may have them; nothing that is compared does.
        if (end_ - at_ < 5) return false;
        *text += '?';
        at_ += 4;
      } else {
        const char* const from = "\"\\/bfnrt";
        const char* found = std::strchr(from, *at_);
        if (found == nullptr || *found == '\0') return false;
        *text += "\"\\/\b\f\n\r\t"[found - from];
      }
    }
    return Take('"');
  }
  bool Value(Json* value, int depth) {
    Space();
    if (at_ == end_ || depth > kDeepest) return false;
    if (*at_ == '"') {
      value->kind = Json::kString;
      return Text(&value->text);
    }
    if (Take('[')) {
      value->kind = Json::kList;
      if (Take(']')) return true;
      do {
        value->items.emplace_back();
        if (!Value(&value->items.back(), depth + 1)) return false;
      } while (Take(','));
      return Take(']');
    }
    if (Take('{')) {
      value->kind = Json::kObject;
      if (Take('}')) return true;
      do {
        value->members.emplace_back();
        if (!Text(&value->members.back().first) || !Take(':')) return false;
        if (!Value(&value->members.back().second, depth + 1)) return false;
      } while (Take(','));
      return Take('}');
    }
    if (Word("null")) return true;
    value->kind = Json::kBool;
    if (Word("false")) return true;
    value->truth = Word("true");
    if (value->truth) return true;
    value->kind = Json::kNumber;
    while (at_ != end_ && std::strchr("+-.0123456789eE", *at_) != nullptr && *at_ != '\0') value->text += *at_++;
    return !value->text.empty();
  }

  const char* at_;
  const char* end_;
};

inline bool ReadFile(const std::string& path, std::string* content) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  content->clear();
  char block[65536];
  size_t count = 0;
  while ((count = std::fread(block, 1, sizeof(block), file)) > 0) content->append(block, count);
  const bool whole = std::ferror(file) == 0;
  std::fclose(file);
  return whole;
}

/// FNV-1a with 64 bits: finds torn files and names cached ones; no protection against forgery.
inline uint64_t Hash(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash;
}

inline std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

inline std::string Folded(const std::string& name) {
  std::string folded;
  for (const char c : name) folded += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t first = folded.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return "";
  return folded.substr(first, folded.find_last_not_of(" \t\r\n") - first + 1);
}

inline bool SameName(const std::string& one, const std::string& other) { return Folded(one) == Folded(other); }

struct Argument {
  enum Kind { kOperand, kTemporary, kScalar } kind = kOperand;
  size_t index = 0;
  std::array<unsigned char, 8> bytes{};
  size_t size = 0;
};

struct Launch {
  std::string function;
  std::vector<size_t> global, local;
  size_t dynamic_local_bytes = 0;
  std::vector<Argument> arguments;
};

struct Limits {
  size_t work_group_size = 0;
  std::array<size_t, 3> work_item_sizes{{1, 1, 1}};
  uint64_t local_memory_bytes = 0;
  uint64_t buffer_bytes = 0;
  std::vector<std::string> extensions;
};

/// How a variant runs a kernel.
struct Recipe {
  std::string source, options;
  Limits limits;
  std::vector<size_t> temporaries;
  std::vector<Launch> launches;
};

struct Variant {
  std::string name, gpu, driver, soc, cluster;
  std::map<std::string, Recipe> recipes;
};

struct Table {
  std::vector<KernelInfo> kernels;
  std::vector<Variant> variants;
  std::string safe;
};

inline bool ReadScalar(const Json& json, Argument* argument) {
  const std::string& type = json["scalar"].text;
  const char* text = json["value"].text.c_str();
  const auto put = [argument](auto value) {
    std::memcpy(argument->bytes.data(), &value, sizeof(value));
    argument->size = sizeof(value);
    return true;
  };
  if (type == "int32") return put(static_cast<int32_t>(std::strtol(text, nullptr, 10)));
  if (type == "int64") return put(static_cast<int64_t>(std::strtoll(text, nullptr, 10)));
  if (type == "float32") return put(std::strtof(text, nullptr));
  return false;
}

inline bool ReadLaunch(const Json& json, size_t operands, size_t temporaries, Launch* launch) {
  launch->function = json["function"].text;
  launch->dynamic_local_bytes = json["dynamic_local_bytes"].number();
  for (const Json& one : json["global"].items) launch->global.push_back(one.number());
  for (const Json& one : json["local"].items) launch->local.push_back(one.number());
  const size_t axes = launch->global.size();
  if (launch->function.empty() || axes == 0 || axes > 3 || launch->local.size() != axes) return false;
  for (size_t axis = 0; axis < axes; ++axis) {
    if (launch->local[axis] == 0 || launch->global[axis] % launch->local[axis] != 0) return false;
  }
  for (const Json& one : json["arguments"].items) {
    Argument argument;
    if (one["scalar"].kind == Json::kString) {
      argument.kind = Argument::kScalar;
      if (!ReadScalar(one, &argument)) return false;
    } else {
      const bool operand = one["operand"].kind == Json::kNumber;
      argument.kind = operand ? Argument::kOperand : Argument::kTemporary;
      argument.index = one[operand ? "operand" : "temporary"].number();
      if (argument.index >= (operand ? operands : temporaries)) return false;
    }
    launch->arguments.push_back(argument);
  }
  return true;
}

inline bool ReadRecipe(const Json& json, size_t operands, Recipe* recipe) {
  recipe->source = json["source"].text;
  recipe->options = json["build_options"].text;
  const Json& limits = json["limits"];
  recipe->limits.work_group_size = limits["work_group_size"].number();
  for (size_t axis = 0; axis < 3 && axis < limits["work_item_sizes"].items.size(); ++axis) {
    recipe->limits.work_item_sizes[axis] = limits["work_item_sizes"].items[axis].number();
  }
  recipe->limits.local_memory_bytes = limits["local_memory_bytes"].number();
  recipe->limits.buffer_bytes = limits["buffer_bytes"].number();
  for (const Json& one : limits["extensions"].items) recipe->limits.extensions.push_back(one.text);
  for (const Json& one : json["temporaries"].items) recipe->temporaries.push_back(one["bytes"].number());
  for (const Json& one : json["launches"].items) {
    recipe->launches.emplace_back();
    if (!ReadLaunch(one, operands, recipe->temporaries.size(), &recipe->launches.back())) return false;
  }
  return !recipe->source.empty() && !recipe->launches.empty();
}

inline Status ReadTable(const std::string& folder, Table* table) {
  const std::string path = folder + "/launch_table.json";
  std::string text;
  Json json;
  if (!ReadFile(path, &text)) return {Code::kFile, "cannot read " + path + ": " + std::strerror(errno)};
  if (!JsonReader(text).Read(&json)) return {Code::kFile, path + " is no whole JSON text"};
  if (json["schema_version"].number() != 1) {
    return {Code::kFile, path + " has schema version " + json["schema_version"].text + ", and this loader reads 1"};
  }
  table->safe = json["safe_variant"].text;
  std::map<std::string, size_t> operands;
  for (const Json& one : json["kernels"].items) {
    KernelInfo kernel{one["name"].text, one["role"].text, one["spec"].text, {}};
    for (const Json& item : one["operands"].items) {
      Operand operand{item["name"].text, item["dtype"].text, {}, item["bytes"].number(), item["output"].truth};
      for (const Json& extent : item["shape"].items) operand.shape.push_back(static_cast<int64_t>(extent.number()));
      kernel.operands.push_back(std::move(operand));
    }
    operands[kernel.name] = kernel.operands.size();
    table->kernels.push_back(std::move(kernel));
  }
  for (const Json& one : json["variants"].items) {
    const Json& match = one["match"];
    Variant variant{one["name"].text,  match["gpu"].text,     match["driver"].text,
                    match["soc"].text, match["cluster"].text, {}};
    for (const auto& [name, recipe] : one["kernels"].members) {
      if (operands.count(name) == 0 || !ReadRecipe(recipe, operands[name], &variant.recipes[name])) {
        return {Code::kFile, path + ": kernel " + name + " of variant " + variant.name + " is damaged"};
      }
    }
    table->variants.push_back(std::move(variant));
  }
  if (table->kernels.empty() || table->variants.empty()) return {Code::kFile, path + " has no kernels"};
  return {};
}

inline std::string DeviceText(const Api& api, cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (api.clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  api.clGetDeviceInfo(device, what, size, &text[0], nullptr);
  text.resize(std::strlen(text.c_str()));
  return text;
}

template <typename T>
T DeviceValue(const Api& api, cl_device_id device, cl_device_info what) {
  T value{};
  api.clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return value;
}

constexpr uintptr_t kAlignment = 64;  ///< Bytes; kernels load and store vectors. Drivers align what they allocate.
constexpr const char* kImage2dFromBuffer = "cl_khr_image2d_from_buffer";
constexpr cl_device_info kImagePitchAlignment = 0x104A;  // CL_DEVICE_IMAGE_PITCH_ALIGNMENT of OpenCL 2.0.

inline DeviceInfo Describe(const Api& api, cl_device_id device) {
  DeviceInfo info;
  info.name = DeviceText(api, device, CL_DEVICE_NAME);
  info.vendor = DeviceText(api, device, CL_DEVICE_VENDOR);
  info.version = DeviceText(api, device, CL_DEVICE_VERSION);
  info.driver = DeviceText(api, device, CL_DRIVER_VERSION);
  info.extensions = DeviceText(api, device, CL_DEVICE_EXTENSIONS);
  const auto platform = DeviceValue<cl_platform_id>(api, device, CL_DEVICE_PLATFORM);
  char name[256] = "";
  api.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof(name) - 1, name, nullptr);
  info.platform = name;
  info.max_work_group_size = DeviceValue<size_t>(api, device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  size_t sizes[16] = {};
  api.clGetDeviceInfo(device, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof(sizes), sizes, nullptr);
  for (size_t axis = 0; axis < 3; ++axis) info.max_work_item_sizes[axis] = sizes[axis];
  info.local_memory_bytes = DeviceValue<cl_ulong>(api, device, CL_DEVICE_LOCAL_MEM_SIZE);
  info.max_buffer_bytes = DeviceValue<cl_ulong>(api, device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.images = DeviceValue<cl_bool>(api, device, CL_DEVICE_IMAGE_SUPPORT) == CL_TRUE;
  if (info.images) {
    info.image_buffer_max = DeviceValue<size_t>(api, device, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE);
    info.image2d_max = {DeviceValue<size_t>(api, device, CL_DEVICE_IMAGE2D_MAX_WIDTH),
                        DeviceValue<size_t>(api, device, CL_DEVICE_IMAGE2D_MAX_HEIGHT)};
    if ((" " + info.extensions + " ").find(std::string(" ") + kImage2dFromBuffer + " ") != std::string::npos) {
      info.image_pitch_alignment = DeviceValue<cl_uint>(api, device, kImagePitchAlignment);
    }
  }
  return info;
}

/// What the device lacks for a kernel; empty where it has all.
inline std::string Lack(const DeviceInfo& device, const Limits& needs) {
  const auto more = [](const std::string& what, uint64_t need, uint64_t has) {
    return need <= has ? std::string()
                       : "needs " + std::to_string(need) + " " + what + ", the device has " + std::to_string(has);
  };
  std::string lack = more("work items a group", needs.work_group_size, device.max_work_group_size);
  for (size_t axis = 0; axis < 3 && lack.empty(); ++axis) {
    lack = more("work items in dimension " + std::to_string(axis), needs.work_item_sizes[axis],
                device.max_work_item_sizes[axis]);
  }
  if (lack.empty()) lack = more("bytes of local memory", needs.local_memory_bytes, device.local_memory_bytes);
  if (lack.empty()) lack = more("bytes in one buffer", needs.buffer_bytes, device.max_buffer_bytes);
  const std::string present = " " + device.extensions + " ";
  for (const std::string& extension : needs.extensions) {
    if (lack.empty() && present.find(" " + extension + " ") == std::string::npos) {
      lack = "needs " + extension + ", which the device does not have";
    }
  }
  return lack;
}

/// An argument of a function that is read as an image over a buffer.
struct ImageArgument {
  size_t place = 0;
  size_t channels = 0;
  size_t texels = 0;
  size_t width = 0;  ///< Texels of a row where it has two dimensions; 0 where it has one.
};
using ImageArguments = std::vector<ImageArgument>;

/// What goes before a source with such images: its macros read buffers without it.
inline std::string ImagePrelude(const ImageArguments& images) {
  if (images.empty()) return "";
  const std::string flag = "#define AUTOTUNE_IMAGES\n";
  if (images.front().width == 0) return flag;
  return flag + "#define AUTOTUNE_IMAGE_WIDTH " + std::to_string(images.front().width) + "\n";
}

/// The image arguments of a function, which its source declares as AUTOTUNE_IMAGE<channels>(<texels>).
inline ImageArguments ImageArgumentsOf(const std::string& source, const std::string& function) {
  static const std::string kMacro = "AUTOTUNE_IMAGE";
  const std::string head = "__kernel void " + function + "(";
  ImageArguments found;
  const size_t begin = source.find(head);
  if (begin == std::string::npos) return found;
  int depth = 1;
  size_t place = 0;
  for (size_t at = begin + head.size(); at < source.size() && depth > 0; ++at) {
    const char c = source[at];
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 1) ++place;
    if (depth != 1 || source.compare(at, kMacro.size(), kMacro) != 0) continue;
    const char* text = source.c_str() + at + kMacro.size();
    char* open = nullptr;
    const size_t channels = std::strtoull(text, &open, 10);
    if (*open == '(') found.push_back({place, channels, std::strtoull(open + 1, nullptr, 10), 0});
  }
  return found;
}

inline cl_image_format ImageFormat(const ImageArgument& image) {
  const cl_channel_order order = image.channels == 4 ? CL_RGBA : image.channels == 2 ? CL_RG : CL_R;
  return {order, CL_FLOAT};
}

/// The images over buffers that a device has.
struct ImageLimits {
  uint64_t texels = 0;               ///< Of one with one dimension, at most.
  std::array<size_t, 2> size{0, 0};  ///< Width and height of one with two, at most.
  size_t pitch = 0;                  ///< What its rows are multiples of, in texels; 0 where there is none.
};

/// What is left of them where a driver has refused such images: those of one dimension, unless it refused these.
inline ImageLimits WithoutRefused(ImageLimits limits, const ImageArguments& refused) {
  limits.pitch = 0;
  if (!refused.empty() && refused.front().width == 0) limits.texels = 0;
  return limits;
}

/// Whether a context has images of these formats over buffers, of one dimension or of two.
template <typename Functions>
bool HasFormats(const Functions& api, cl_context context, const ImageArguments& images, cl_mem_object_type type) {
  cl_image_format formats[256];
  cl_uint count = 0;
  if (api.clGetSupportedImageFormats(context, CL_MEM_READ_ONLY, type, 256, formats, &count) != CL_SUCCESS) return false;
  return std::all_of(images.begin(), images.end(), [&](const ImageArgument& image) {
    const cl_image_format wanted = ImageFormat(image);
    return std::any_of(formats, formats + std::min<cl_uint>(count, 256), [&](const cl_image_format& one) {
      return one.image_channel_order == wanted.image_channel_order &&
             one.image_channel_data_type == wanted.image_channel_data_type;
    });
  });
}

/// The same images as a device has them: all with one dimension, or, where one is too long, all with two and rows of one
/// length; none where it does not have them all.
template <typename Functions>
ImageArguments FittedImages(const Functions& api, cl_context context, ImageArguments images, const ImageLimits& limits) {
  const auto all = [&](auto holds) { return std::all_of(images.begin(), images.end(), holds); };
  if (images.empty()) return {};
  if (all([&](const ImageArgument& one) { return one.texels <= limits.texels; })) {
    return HasFormats(api, context, images, CL_MEM_OBJECT_IMAGE1D_BUFFER) ? images : ImageArguments();
  }
  size_t width = 1;  // A power of two, so that a texel's row and column cost two instructions.
  while (2 * width <= limits.size[0] && all([&](const ImageArgument& one) { return one.texels % (2 * width) == 0; })) {
    width *= 2;
  }
  const bool fits = limits.pitch != 0 && width % limits.pitch == 0 &&
                    all([&](const ImageArgument& one) { return one.texels / width <= limits.size[1]; });
  if (!fits || !HasFormats(api, context, images, CL_MEM_OBJECT_IMAGE2D)) return {};
  for (ImageArgument& one : images) one.width = width;
  return images;
}

/// A buffer as an image, without a copy; to be released.
template <typename Functions>
cl_mem ImageOver(const Functions& api, cl_context context, cl_mem buffer, const ImageArgument& image, cl_int* code) {
  const cl_image_format format = ImageFormat(image);
  cl_image_desc shape{};
  shape.image_type = CL_MEM_OBJECT_IMAGE1D_BUFFER;
  shape.image_width = image.texels;
  if (image.width != 0) {
    shape.image_type = CL_MEM_OBJECT_IMAGE2D;
    shape.image_width = image.width;
    shape.image_height = image.texels / image.width;
    shape.image_row_pitch = image.width * image.channels * sizeof(float);
  }
  shape.buffer = buffer;
  return api.clCreateImage(context, CL_MEM_READ_ONLY, &format, &shape, nullptr, code);
}

constexpr const char* kCacheMagic = "autotune-opencl-1 ";

/// A file of the cache: a line of magic, two lengths and a sum, then the key, then the program.
inline std::string CacheHead(const std::string& key, const std::string& program) {
  return kCacheMagic + std::to_string(key.size()) + " " + std::to_string(program.size()) + " " +
         Hex(Hash(key + program)) + "\n";
}

inline std::string ReadCache(const std::string& path, const std::string& key) {
  std::string content;
  if (!ReadFile(path, &content)) return "";
  const size_t line = content.find('\n');
  if (line == std::string::npos || content.compare(line + 1, key.size(), key) != 0) return "";
  const std::string program = content.substr(std::min(content.size(), line + 1 + key.size()));
  if (content.compare(0, line + 1, CacheHead(key, program)) != 0) return "";
  utime(path.c_str(), nullptr);  // It was used.
  return program;
}

/// Whether a file begins as those of the cache do.
inline bool IsKept(const std::string& path) {
  char head[32] = "";
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const size_t size = std::strlen(kCacheMagic);
  const bool same = std::fread(head, 1, size, file) == size && std::memcmp(head, kCacheMagic, size) == 0;
  std::fclose(file);
  return same;
}

constexpr time_t kTornSeconds = 3600;

/// Removes programs that were not used for longest, where a folder has more bytes of them, and what a writer that was
/// killed has left. The folder may have other files.
inline void TrimCache(const std::string& folder, uint64_t most) {
  struct Kept {
    time_t used;
    uint64_t bytes;
    std::string path;
    bool whole;  // Half a program has a longer name until it is whole.
  };
  std::vector<Kept> files;
  uint64_t bytes = 0;
  DIR* listed = opendir(folder.c_str());
  if (listed == nullptr) return;
  while (const dirent* entry = readdir(listed)) {
    const std::string name = entry->d_name, path = folder + "/" + name;
    struct stat about {};
    const bool named = name.size() >= 20 && name.compare(16, 4, ".bin") == 0 &&
                       name.find_first_not_of("0123456789abcdef") == 16;
    if (!named || stat(path.c_str(), &about) != 0) continue;
    files.push_back({about.st_mtime, static_cast<uint64_t>(about.st_size), path, name.size() == 20});
    bytes += files.back().bytes;
  }
  closedir(listed);
  if (bytes <= most) return;  // As after most programs that are new: no file is opened.
  bytes = 0;
  const auto others = [&](const Kept& one) {
    if (!IsKept(one.path)) return true;
    if (!one.whole && std::time(nullptr) - one.used > kTornSeconds) std::remove(one.path.c_str());
    bytes += one.whole ? one.bytes : 0;
    return !one.whole;
  };
  files.erase(std::remove_if(files.begin(), files.end(), others), files.end());
  std::sort(files.begin(), files.end(), [](const Kept& one, const Kept& other) { return one.used < other.used; });
  for (const Kept& one : files) {
    if (bytes <= most - most / 4) return;  // So that there is room for some.
    std::remove(one.path.c_str());
    bytes -= one.bytes;
  }
}

/// Writes the file whole or not at all; a cache that cannot be written is none.
inline void WriteCache(const std::string& folder, const std::string& path, const std::string& key,
                       const std::string& program) {
  for (size_t at = folder.find('/', 1); at != std::string::npos; at = folder.find('/', at + 1)) {
    mkdir(folder.substr(0, at).c_str(), 0755);
  }
  mkdir(folder.c_str(), 0755);
  static std::atomic<unsigned> number{0};
  const std::string fresh = path + "." + std::to_string(getpid()) + "." + std::to_string(number++);
  std::FILE* file = std::fopen(fresh.c_str(), "wb");
  if (file == nullptr) return;
  const std::string content = CacheHead(key, program) + key + program;
  const bool whole = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  if (std::fclose(file) != 0 || !whole || std::rename(fresh.c_str(), path.c_str()) != 0) std::remove(fresh.c_str());
}

/// A program that was compiled, or kept; null where `failed` is the call that did not make it.
struct MadeProgram {
  cl_program program = nullptr;  ///< To be released.
  bool kept = false;
  const char* failed = nullptr;
  cl_int code = CL_SUCCESS;
  std::string log;  ///< What the compiler says where it refuses the source.
};

/// A program from what a driver once gave; null where it does not take it back.
template <typename Functions>
cl_program ProgramFromBinary(const Functions& api, cl_context context, cl_device_id device, const std::string& binary,
                             const std::string& options) {
  const size_t size = binary.size();
  const auto* bytes = reinterpret_cast<const unsigned char*>(binary.data());
  cl_int loaded = CL_SUCCESS, code = CL_SUCCESS;
  cl_program program = api.clCreateProgramWithBinary(context, 1, &device, &size, &bytes, &loaded, &code);
  size_t kernels = 0;
  if (code == CL_SUCCESS && loaded == CL_SUCCESS &&
      api.clBuildProgram(program, 1, &device, options.c_str(), nullptr, nullptr) == CL_SUCCESS &&
      api.clGetProgramInfo(program, CL_PROGRAM_NUM_KERNELS, sizeof(kernels), &kernels, nullptr) == CL_SUCCESS &&
      kernels > 0) {
    return program;
  }
  if (code == CL_SUCCESS) api.clReleaseProgram(program);
  return nullptr;
}

template <typename Functions>
MadeProgram ProgramFromSource(const Functions& api, cl_context context, cl_device_id device, const std::string& source,
                              const std::string& options) {
  MadeProgram made;
  const char* text = source.c_str();
  const size_t size = source.size();
  cl_program program = api.clCreateProgramWithSource(context, 1, &text, &size, &made.code);
  if (made.code != CL_SUCCESS) {
    made.failed = "clCreateProgramWithSource";
    return made;
  }
  made.code = api.clBuildProgram(program, 1, &device, options.c_str(), nullptr, nullptr);
  if (made.code == CL_SUCCESS) {
    made.program = program;
    return made;
  }
  made.failed = "clBuildProgram";
  size_t bytes = 0;
  api.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes);
  std::string log(bytes, '\0');
  if (bytes > 0) api.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, bytes, &log[0], nullptr);
  log.resize(std::strlen(log.c_str()));
  log.resize(log.find_last_not_of("\n ") + 1);
  made.log = log.empty() ? "the driver says nothing" : log;
  api.clReleaseProgram(program);
  return made;
}

/// What the driver made of a program; empty where it does not give it.
template <typename Functions>
std::string ProgramBinary(const Functions& api, cl_program program) {
  size_t size = 0;
  if (api.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, nullptr) != CL_SUCCESS) return "";
  std::string binary(size, '\0');
  auto* bytes = reinterpret_cast<unsigned char*>(&binary[0]);
  if (size == 0 || api.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(bytes), &bytes, nullptr) != CL_SUCCESS) {
    return "";
  }
  return binary;
}

/// The program of a source: from a folder of such where it is there, else compiled and put there.
/// @param about All that tells this device and its driver from others.
/// @param folder Where compiled programs are kept; empty to keep none.
/// @param most Bytes of them that it keeps.
template <typename Functions>
MadeProgram KeptProgram(const Functions& api, cl_context context, cl_device_id device,
                        std::initializer_list<std::string> about, const std::string& source, const std::string& options,
                        const std::string& folder, uint64_t most = Options().cache_bytes) {
  if (folder.empty()) return ProgramFromSource(api, context, device, source, options);
  std::string key;
  for (const std::string& part : about) key += part + "\n";
  key += options + "\n" + std::to_string(source.size()) + " " + Hex(Hash(source)) + "\n";
  const std::string path = folder + "/" + Hex(Hash(key)) + ".bin";
  if (const std::string binary = ReadCache(path, key); !binary.empty()) {
    MadeProgram kept;
    kept.program = ProgramFromBinary(api, context, device, binary, options);
    kept.kept = true;
    if (kept.program != nullptr) return kept;
  }
  MadeProgram made = ProgramFromSource(api, context, device, source, options);
  if (made.program == nullptr) return made;
  if (const std::string binary = ProgramBinary(api, made.program); !binary.empty()) {
    WriteCache(folder, path, key, binary);
    TrimCache(folder, most);
  }
  return made;
}

/// The same for a device that is described.
inline MadeProgram KeptProgram(const Api& api, cl_context context, cl_device_id device, const DeviceInfo& info,
                               const std::string& source, const std::string& options, const std::string& folder,
                               uint64_t most = Options().cache_bytes) {
  return KeptProgram(api, context, device, {info.platform, info.vendor, info.name, info.version, info.driver}, source,
                     options, folder, most);
}

}  // namespace internal

/// An export, opened for one device. May be used by several threads; a queue at a time gets whole kernels.
class Library {
 public:
  /// Reads the launch table and chooses the variant: the named one; else that of this GPU and driver, of this GPU, or of
  /// this SoC; else the safe one. Nothing is compiled yet.
  static Status Open(const std::string& folder, cl_context context, cl_device_id device, const Options& options,
                     std::unique_ptr<Library>* library) {
    library->reset();
    std::string why;
    const Api* api = options.api != nullptr ? options.api : FindApi(&why);
    if (api == nullptr) return {Code::kNoOpenCl, why};
    if (context == nullptr || device == nullptr) return {Code::kArgument, "the context or the device is null"};
    std::unique_ptr<Library> made(new Library(folder, *api, context, device, options));
    if (Status status = internal::ReadTable(folder, &made->table_); !status.ok()) return status;
    if (Status status = made->Choose(); !status.ok()) return status;
    *library = std::move(made);
    return {};
  }

  ~Library() {
    for (InFlight& one : in_flight_) {
      api_.clWaitForEvents(1, &one.done);
      Release(&one);
    }
    for (auto& [name, kernel] : built_) Discard(kernel.get());
    api_.clReleaseContext(context_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  const DeviceInfo& device() const { return info_; }
  const std::string& variant() const { return table_.variants[chosen_].name; }
  const std::vector<KernelInfo>& kernels() const { return table_.kernels; }
  std::vector<std::string> variants() const {
    std::vector<std::string> names;
    for (const internal::Variant& one : table_.variants) names.push_back(one.name);
    return names;
  }

  /// Null where there is no kernel of that name.
  const KernelInfo* Find(const std::string& name) const {
    for (const KernelInfo& one : table_.kernels) {
      if (one.name == name) return &one;
    }
    return nullptr;
  }

  /// Which variant a prepared kernel is of: the chosen one, or the safe one where that has no kernel that fits.
  std::string VariantOf(const std::string& name) const {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = built_.find(name);
    return found == built_.end() ? "" : found->second->variant;
  }

  /// Programs that were compiled from source, and those that came from the cache.
  size_t compiled() const { return compiled_; }
  size_t cached() const { return cached_; }

  /// Checks limits and compiles a kernel now, which Enqueue else does at its first call.
  Status Prepare(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    Built* built = nullptr;
    return Get(name, &built);
  }

  /// Enqueues a kernel's launches; does not wait for them.
  /// @param queue An in-order queue of the library's context and device.
  /// @param operands Buffers, inputs and then outputs.
  /// @param done Where it is not null: receives an event of the last launch, to be released by the caller.
  Status Enqueue(const std::string& name, cl_command_queue queue, const cl_mem* operands, size_t count,
                 cl_event* done = nullptr) {
    std::lock_guard<std::mutex> lock(mutex_);
    Built* built = nullptr;
    if (Status status = Get(name, &built); !status.ok()) return status;
    if (Status status = CheckOperands(*built, operands, count); !status.ok()) return status;
    ReleaseRead();
    bool refused = false;
    Status status = Launch(built, queue, operands, done, &refused);
    if (refused) {
      if (status = WithoutImages(name, queue, &built); !status.ok()) return status;
      status = Launch(built, queue, operands, done, &refused);
    }
    return status;
  }

  Status Enqueue(const std::string& name, cl_command_queue queue, std::initializer_list<cl_mem> operands,
                 cl_event* done = nullptr) {
    return Enqueue(name, queue, operands.begin(), operands.size(), done);
  }

 private:
  struct Built {
    const KernelInfo* info = nullptr;
    const internal::Recipe* recipe = nullptr;
    size_t index = 0;
    std::string variant;
    cl_program program = nullptr;
    std::vector<cl_kernel> kernels;  // One a launch: a kernel object holds its arguments.
    std::vector<internal::ImageArguments> images;  // One a launch.
    std::map<cl_command_queue, std::vector<cl_mem>> temporaries;  // Queues run at the same time.
  };

  /// Images over the operands of one launch.
  class Views {
   public:
    explicit Views(const Api& api) : api_(api) {}
    ~Views() {
      for (cl_mem one : views_) api_.clReleaseMemObject(one);
    }
    Views(const Views&) = delete;
    Views& operator=(const Views&) = delete;

    const cl_mem* Keep(cl_mem view) {
      views_.push_back(view);
      return &views_.back();
    }

    bool empty() const { return views_.empty(); }
    std::deque<cl_mem> Take() { return std::exchange(views_, {}); }

    /// Says that the driver does not make one of them.
    void Refuse() { refused_ = true; }
    bool refused() const { return refused_; }

   private:
    const Api& api_;
    std::deque<cl_mem> views_;
    bool refused_ = false;
  };

  Library(const std::string& folder, const Api& api, cl_context context, cl_device_id device, const Options& options)
      : folder_(folder), options_(options), api_(api), context_(context), device_(device) {
    api_.clRetainContext(context_);
    info_ = internal::Describe(api_, device_);
    image_limits_ = {info_.image_buffer_max, info_.image2d_max, info_.image_pitch_alignment};
  }

  static Status Failed(cl_int code, const std::string& what) {
    return {Code::kOpenCl, what + ": " + ErrorText(code)};
  }

  /// Images that a launch may not have read yet: drivers were seen to lose those that are released before.
  struct InFlight {
    cl_event done;
    std::deque<cl_mem> views;
  };

  void Release(InFlight* one) {
    for (cl_mem view : one->views) api_.clReleaseMemObject(view);
    api_.clReleaseEvent(one->done);
  }

  void ReleaseRead() {
    std::deque<InFlight> left;
    for (InFlight& one : in_flight_) {
      cl_int state = CL_COMPLETE;
      const cl_int code =
          api_.clGetEventInfo(one.done, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state, nullptr);
      if (code == CL_SUCCESS && state > CL_COMPLETE) {
        left.push_back(std::move(one));
      } else {
        Release(&one);
      }
    }
    in_flight_.swap(left);
  }

  /// Enqueues the launches of a kernel; `refused` where the driver makes no image of an operand.
  Status Launch(Built* built, cl_command_queue queue, const cl_mem* operands, cl_event* done, bool* refused) {
    const std::vector<cl_mem>* temporaries = nullptr;
    if (Status status = Temporaries(built, queue, &temporaries); !status.ok()) return status;
    for (size_t i = 0; i < built->recipe->launches.size(); ++i) {
      const internal::Launch& launch = built->recipe->launches[i];
      const bool last = i + 1 == built->recipe->launches.size();
      Views views(api_);
      Status status = SetArguments(*built, i, operands, *temporaries, &views);
      *refused = views.refused();
      if (!status.ok()) return status;
      cl_event launched = nullptr;
      const bool told = last && done != nullptr;
      const cl_int code = api_.clEnqueueNDRangeKernel(queue, built->kernels[i], static_cast<cl_uint>(launch.global.size()),
                                                      nullptr, launch.global.data(), launch.local.data(), 0, nullptr,
                                                      told || !views.empty() ? &launched : nullptr);
      if (code != CL_SUCCESS) return Failed(code, "the launch of " + launch.function);
      if (told) *done = launched;
      if (!views.empty()) {
        if (told) api_.clRetainEvent(launched);
        in_flight_.push_back({launched, views.Take()});
      }
    }
    return {};
  }

  /// Sets every argument of a launch. `views` keeps the images that it reads, and hears of one that is not made.
  Status SetArguments(const Built& built, size_t i, const cl_mem* operands, const std::vector<cl_mem>& temporaries,
                      Views* views) const {
    const internal::Launch& launch = built.recipe->launches[i];
    auto image = built.images[i].begin();
    cl_uint index = 0;
    cl_int code = CL_SUCCESS;
    for (const internal::Argument& argument : launch.arguments) {
      const void* value = argument.bytes.data();
      size_t size = argument.size;
      if (argument.kind != internal::Argument::kScalar) {
        const bool operand = argument.kind == internal::Argument::kOperand;
        const cl_mem* buffer = operand ? &operands[argument.index] : &temporaries[argument.index];
        value = buffer;
        size = sizeof(cl_mem);
        if (image != built.images[i].end() && image->place == index) {
          cl_mem view = internal::ImageOver(api_, context_, *buffer, *image++, &code);
          if (code != CL_SUCCESS) {
            views->Refuse();
            return Failed(code, "an image of argument " + std::to_string(index) + " of " + launch.function);
          }
          value = views->Keep(view);
        }
      }
      code = api_.clSetKernelArg(built.kernels[i], index++, size, value);
      if (code != CL_SUCCESS) return Failed(code, "argument " + std::to_string(index - 1) + " of " + launch.function);
    }
    if (launch.dynamic_local_bytes > 0) {
      code = api_.clSetKernelArg(built.kernels[i], index, launch.dynamic_local_bytes, nullptr);
      if (code != CL_SUCCESS) return Failed(code, "the local memory of " + launch.function);
    }
    return {};
  }

  /// A driver that announces images and does not make them has none of that form: this kernel, made anew, and all later
  /// ones do without.
  Status WithoutImages(const std::string& name, cl_command_queue queue, Built** built) {
    api_.clFinish(queue);  // Its first launches may be under way.
    const auto found = built_.find(name);
    for (const internal::ImageArguments& images : found->second->images) {
      if (!images.empty()) image_limits_ = internal::WithoutRefused(image_limits_, images);
    }
    Discard(found->second.get());
    built_.erase(found);
    return Get(name, built);
  }

  Status Choose() {
    size_t safe = table_.variants.size();
    for (size_t i = 0; i < table_.variants.size(); ++i) {
      if (table_.variants[i].name == table_.safe) safe = i;
      if (!options_.variant.empty() && internal::SameName(table_.variants[i].name, options_.variant)) {
        chosen_ = safe_ = i;
        return {};
      }
    }
    if (!options_.variant.empty()) return {Code::kUnknown, "there is no variant " + options_.variant};
    if (safe == table_.variants.size()) return {Code::kFile, "the launch table's safe variant is not in it"};
    chosen_ = safe_ = safe;
    int best = 0;
    for (size_t i = 0; i < table_.variants.size(); ++i) {
      const int rank = Rank(table_.variants[i]);
      if (rank <= best) continue;
      best = rank;
      chosen_ = i;
    }
    return {};
  }

  /// How well a variant fits; 0 where it does not.
  int Rank(const internal::Variant& one) const {
    const bool gpu = !one.gpu.empty() && internal::SameName(one.gpu, info_.name);
    const bool driver = gpu && !one.driver.empty() && internal::SameName(one.driver, info_.driver);
    const bool soc = !one.soc.empty() && internal::SameName(one.soc, options_.soc);
    if (!gpu && !soc) return 0;
    if (!one.soc.empty() && !options_.soc.empty() && !soc) return 0;  // The same GPU in another chip.
    const bool wanted = !one.cluster.empty() && internal::SameName(one.cluster, options_.cluster);
    if (!one.cluster.empty() && !options_.cluster.empty() && !wanted) return 0;
    return (driver ? 8 : 0) + (gpu ? 4 : 0) + (soc ? 2 : 0) + (wanted ? 1 : 0);
  }

  Status Get(const std::string& name, Built** built) {
    auto found = built_.find(name);
    if (found == built_.end()) {
      const KernelInfo* info = Find(name);
      if (info == nullptr) return {Code::kUnknown, "there is no kernel " + name};
      auto made = std::make_unique<Built>();
      made->info = info;
      Status status = Make(chosen_, made.get());
      // A program that is right but slow is better than none; a damaged export is to be seen.
      if (!status.ok() && status.code != Code::kFile && safe_ != chosen_) {
        const std::string first = status.text;
        status = Make(safe_, made.get());
        if (!status.ok()) status.text = first + "; and " + status.text;
      }
      if (!status.ok()) return status;
      found = built_.emplace(name, std::move(made)).first;
    }
    *built = found->second.get();
    return {};
  }

  Status Make(size_t index, Built* built) {
    const internal::Variant& variant = table_.variants[index];
    const auto found = variant.recipes.find(built->info->name);
    const std::string what = "kernel " + built->info->name + " of variant " + variant.name;
    if (found == variant.recipes.end()) return {Code::kUnknown, "there is no " + what};
    const internal::Recipe& recipe = found->second;
    const std::string lack = internal::Lack(info_, recipe.limits);
    if (!lack.empty()) return {Code::kLimits, what + " " + lack};
    std::string source;
    if (!internal::ReadFile(folder_ + "/" + recipe.source, &source)) {
      return {Code::kFile, "cannot read " + folder_ + "/" + recipe.source};
    }
    built->recipe = &recipe;
    built->index = index;
    built->variant = variant.name;
    built->images.clear();
    internal::ImageArguments every;
    for (const internal::Launch& launch : recipe.launches) {
      built->images.push_back(internal::ImageArgumentsOf(source, launch.function));
      every.insert(every.end(), built->images.back().begin(), built->images.back().end());
    }
    every = internal::FittedImages(api_, context_, std::move(every), image_limits_);
    for (internal::ImageArguments& images : built->images) {
      if (every.empty()) images.clear();
      for (internal::ImageArgument& image : images) image.width = every.front().width;
    }
    source = internal::ImagePrelude(every) + source;
    const internal::MadeProgram made = internal::KeptProgram(api_, context_, device_, info_, source, recipe.options,
                                                             options_.cache_folder, options_.cache_bytes);
    built->program = made.program;
    if (made.failed != nullptr && made.log.empty()) return Failed(made.code, "the program of " + what);
    if (made.failed != nullptr) {
      return {Code::kBuild, what + " does not compile for " + info_.name + " (OpenCL error " +
                                std::to_string(made.code) + "): " + made.log};
    }
    Status status = Kernels(what, built);
    if (!status.ok()) Discard(built);
    if (status.ok()) ++(made.kept ? cached_ : compiled_);
    return status;
  }

  Status Kernels(const std::string& what, Built* built) {
    for (const internal::Launch& launch : built->recipe->launches) {
      cl_int code = CL_SUCCESS;
      cl_kernel kernel = api_.clCreateKernel(built->program, launch.function.c_str(), &code);
      if (code != CL_SUCCESS) return Failed(code, "function " + launch.function + " of " + what);
      built->kernels.push_back(kernel);
      size_t most = 0, group = 1;
      for (const size_t extent : launch.local) group *= extent;
      api_.clGetKernelWorkGroupInfo(kernel, device_, CL_KERNEL_WORK_GROUP_SIZE, sizeof(most), &most, nullptr);
      if (most != 0 && group > most) {  // What registers leave, which is known only now.
        return {Code::kLimits, what + " needs groups of " + std::to_string(group) + " work items, and the driver allows " +
                                   std::to_string(most) + " for it on " + info_.name};
      }
    }
    return {};
  }

  void Discard(Built* built) {
    for (cl_kernel one : built->kernels) api_.clReleaseKernel(one);
    built->kernels.clear();
    if (built->program != nullptr) api_.clReleaseProgram(built->program);
    built->program = nullptr;
    for (auto& [queue, buffers] : built->temporaries) {
      for (cl_mem one : buffers) api_.clReleaseMemObject(one);
    }
    built->temporaries.clear();
  }

  Status CheckOperands(const Built& built, const cl_mem* operands, size_t count) const {
    const KernelInfo& info = *built.info;
    if (count != info.operands.size() || operands == nullptr) {
      return {Code::kArgument, "kernel " + info.name + " takes " + std::to_string(info.operands.size()) +
                                   " operands, and was given " + std::to_string(count)};
    }
    for (size_t i = 0; i < count; ++i) {
      const std::string which = "operand " + info.operands[i].name + " of kernel " + info.name;
      if (operands[i] == nullptr) return {Code::kArgument, which + " is null"};
      size_t bytes = 0;
      const cl_int code = api_.clGetMemObjectInfo(operands[i], CL_MEM_SIZE, sizeof(bytes), &bytes, nullptr);
      if (code != CL_SUCCESS) return {Code::kArgument, which + " is no buffer: " + ErrorText(code)};
      if (bytes < info.operands[i].bytes) {
        return {Code::kArgument, which + " needs " + std::to_string(info.operands[i].bytes) + " bytes, and its buffer has " +
                                     std::to_string(bytes)};
      }
      void* host = nullptr;  // Of a buffer over the engine's own memory alone.
      api_.clGetMemObjectInfo(operands[i], CL_MEM_HOST_PTR, sizeof(host), &host, nullptr);
      if (reinterpret_cast<uintptr_t>(host) % internal::kAlignment != 0) {
        return {Code::kArgument, which + " lies in host memory that does not begin at a multiple of " +
                                     std::to_string(internal::kAlignment) + " bytes"};
      }
    }
    return {};
  }

  /// The kernel's temporaries for a queue, made at its first call.
  Status Temporaries(Built* built, cl_command_queue queue, const std::vector<cl_mem>** temporaries) {
    cl_command_queue_properties properties = 0;
    const cl_int known =
        api_.clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(properties), &properties, nullptr);
    if (known != CL_SUCCESS) return {Code::kArgument, "that is no queue: " + ErrorText(known)};
    if ((properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0) {
      return {Code::kArgument, "the queue runs out of order, and a kernel's launches need their order"};
    }
    auto found = built->temporaries.find(queue);
    if (found == built->temporaries.end()) {
      std::vector<cl_mem> made;
      for (const size_t bytes : built->recipe->temporaries) {
        cl_int code = CL_SUCCESS;
        cl_mem one = api_.clCreateBuffer(context_, CL_MEM_READ_WRITE, bytes, nullptr, &code);
        if (code != CL_SUCCESS) {
          for (cl_mem earlier : made) api_.clReleaseMemObject(earlier);
          return Failed(code, "a temporary of " + std::to_string(bytes) + " bytes of kernel " + built->info->name);
        }
        made.push_back(one);
      }
      found = built->temporaries.emplace(queue, std::move(made)).first;
    }
    *temporaries = &found->second;
    return {};
  }

  const std::string folder_;
  const Options options_;
  const Api& api_;
  const cl_context context_;
  const cl_device_id device_;
  DeviceInfo info_;
  internal::ImageLimits image_limits_;
  internal::Table table_;
  size_t chosen_ = 0, safe_ = 0;
  std::atomic<size_t> compiled_{0}, cached_{0};
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Built>> built_;
  std::deque<InFlight> in_flight_;
};

/// A device with a context and an in-order queue, for programs that have none: the first GPU, else the first device.
class Session {
 public:
  static Status Open(std::unique_ptr<Session>* session, const Api* api = nullptr) {
    session->reset();
    std::string why;
    if (api == nullptr) api = FindApi(&why);
    if (api == nullptr) return {Code::kNoOpenCl, why};
    std::unique_ptr<Session> made(new Session(*api));
    if (!made->Take(CL_DEVICE_TYPE_GPU) && !made->Take(CL_DEVICE_TYPE_ALL)) {
      return {Code::kNoOpenCl, "OpenCL has no device here"};
    }
    cl_int code = CL_SUCCESS;
    made->context = api->clCreateContext(nullptr, 1, &made->device, nullptr, nullptr, &code);
    if (code != CL_SUCCESS) return {Code::kOpenCl, "clCreateContext: " + ErrorText(code)};
    made->queue = api->clCreateCommandQueue(made->context, made->device, 0, &code);
    if (code != CL_SUCCESS) return {Code::kOpenCl, "clCreateCommandQueue: " + ErrorText(code)};
    *session = std::move(made);
    return {};
  }

  ~Session() {
    if (queue != nullptr) api.clReleaseCommandQueue(queue);
    if (context != nullptr) api.clReleaseContext(context);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Api& api;
  cl_device_id device = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;

 private:
  explicit Session(const Api& found) : api(found) {}

  bool Take(cl_device_type type) {
    cl_platform_id platforms[16];
    cl_uint count = 0;
    if (api.clGetPlatformIDs(16, platforms, &count) != CL_SUCCESS) return false;
    for (cl_uint i = 0; i < count && i < 16; ++i) {
      if (api.clGetDeviceIDs(platforms[i], type, 1, &device, nullptr) == CL_SUCCESS) return true;
    }
    return false;
  }
};
#pragma GCC diagnostic pop

}  // namespace autotune_opencl

#undef AUTOTUNE_OPENCL_CALLS
#undef AUTOTUNE_OPENCL_MORE_CALLS
#endif  // AUTOTUNE_OPENCL_HPP_
