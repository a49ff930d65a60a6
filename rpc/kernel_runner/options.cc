// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include "../common/options.h"

namespace autotune {
namespace kernel_runner {

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
    if (i + 1 == words.size()) Refuse(word + " needs a value");
    const std::string& value = words[++i];
    if (word == "--arg" || word == "--out") {
      options.tensors.push_back(TensorSpec::Parse(value, word == "--out"));
    } else if (word == "--threads") {
      options.threads = WholeOption(word, value, 1, 1024);
    } else if (word == "--repeat") {
      options.repeat = WholeOption(word, value, 0, 1000000);
    } else if (word == "--min-repeat-ms") {
      options.min_repeat_ms = RealOption(word, value, 0, 3.6e6);
    } else {
      Refuse("unknown option " + word);
    }
  }
  if (names.size() != 2) Refuse("give one LIBRARY and one SYMBOL");
  options.library = names[0];
  options.symbol = names[1];
  return options;
}

}  // namespace kernel_runner
}  // namespace autotune
