// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <algorithm>
#include <stdexcept>

namespace autotune {
namespace step_runner {
namespace {

uint64_t Whole(const std::string& option, const std::string& text, uint64_t least, uint64_t most) {
  const bool digits =
      !text.empty() && text.size() < 10 &&
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const uint64_t value = digits ? std::stoull(text) : 0;
  if (!digits || value < least || value > most) {
    throw std::invalid_argument(option + " takes a number from " + std::to_string(least) + " to " +
                                std::to_string(most) + ", not '" + text + "'");
  }
  return value;
}

}  // namespace

const char* Options::Usage() {
  return "usage: autotune_step_runner FOLDER [--threads N | --settings FILE] [--steps N] [--trace]\n"
         "       autotune_step_runner --switches FILE\n"
         "  --threads N      threads of a parallel loop (default 1)\n"
         "  --settings FILE  cores, threads and clocks by call, instead of --threads\n"
         "  --steps N        steps to run (default: until it is ended)\n"
         "  --trace          print when each call began\n"
         "  --switches FILE  measure what it costs to change between the settings of a file\n"
         "Prints a line a step: step NUMBER loss VALUE ms TIME.\n";
}

Options Options::Parse(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.compare(0, 2, "--") != 0) {
      if (!options.folder.empty()) throw std::invalid_argument("give one FOLDER");
      options.folder = word;
      continue;
    }
    if (word == "--trace") {
      options.trace = true;
      continue;
    }
    if (i + 1 == words.size()) throw std::invalid_argument(word + " is unknown, or needs a value");
    const std::string& value = words[++i];
    if (word == "--threads") {
      options.threads = static_cast<int>(Whole(word, value, 1, 1024));
    } else if (word == "--steps") {
      options.steps = Whole(word, value, 1, 999999999);
    } else if (word == "--settings") {
      options.settings = value;
    } else if (word == "--switches") {
      options.switches = value;
    } else {
      throw std::invalid_argument("unknown option " + word);
    }
  }
  if (options.folder.empty() == options.switches.empty()) {
    throw std::invalid_argument("give a FOLDER, or --switches");
  }
  return options;
}

}  // namespace step_runner
}  // namespace autotune
