// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <stdexcept>

namespace autotune {
namespace kernel_runner {
namespace {

double ParseReal(const std::string& flag, const std::string& text, double least, double most) {
  size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || !(value >= least && value <= most)) {
    throw std::invalid_argument(flag + " cannot be '" + text + "'");
  }
  return value;
}

int ParseWhole(const std::string& flag, const std::string& text, int least, int most) {
  const double value = ParseReal(flag, text, least, most);
  if (value != static_cast<int>(value)) {
    throw std::invalid_argument(flag + " cannot be '" + text + "'");
  }
  return static_cast<int>(value);
}

}  // namespace

const char* Options::Usage() {
  return "usage: autotune_kernel_runner LIBRARY SYMBOL [options]\n"
         "  --arg TYPE:SHAPE:FILE   an input, such as f32:4x3x8x8:in.bin (raw, little-endian)\n"
         "  --out TYPE:SHAPE:FILE   an output, written after the first run\n"
         "                          (give --arg and --out in the order of the parameters)\n"
         "  --threads N             threads of a parallel loop (default 1)\n"
         "  --repeat N              measurements (default 1; 0 only runs and checks)\n"
         "  --min-repeat-ms MS      least duration of a measurement (default 0: one run each)\n"
         "Prints one JSON object. Types: f16 f32 f64 bf16 i8 to i64, u8 to u64, bool.\n";
}

Options Options::Parse(const std::vector<std::string>& words) {
  Options options;
  std::vector<std::string> names;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.compare(0, 2, "--") != 0) {
      names.push_back(word);
      continue;
    }
    if (i + 1 == words.size()) throw std::invalid_argument(word + " needs a value");
    const std::string& value = words[++i];
    if (word == "--arg" || word == "--out") {
      options.tensors.push_back(TensorSpec::Parse(value, word == "--out"));
    } else if (word == "--threads") {
      options.threads = ParseWhole(word, value, 1, 1024);
    } else if (word == "--repeat") {
      options.repeat = ParseWhole(word, value, 0, 1000000);
    } else if (word == "--min-repeat-ms") {
      options.min_repeat_ms = ParseReal(word, value, 0, 3.6e6);
    } else {
      throw std::invalid_argument("unknown option " + word);
    }
  }
  if (names.size() != 2) throw std::invalid_argument("give one LIBRARY and one SYMBOL");
  options.library = names[0];
  options.symbol = names[1];
  return options;
}

}  // namespace kernel_runner
}  // namespace autotune
