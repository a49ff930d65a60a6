// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include "../common/options.h"

namespace autotune {
namespace step_runner {

const char* Options::Usage() {
  return "usage: autotune_step_runner FOLDER [--threads N | --settings FILE] [--steps N] [--trace]\n"
         "       autotune_step_runner FOLDER --crossings\n"
         "       autotune_step_runner --switches FILE\n"
         "  --threads N      threads of a parallel loop (default 1)\n"
         "  --settings FILE  cores, threads and clocks by call, instead of --threads\n"
         "  --steps N        steps to run (default: until it is ended)\n"
         "  --trace          print when each call began\n"
         "  --crossings      measure what it costs to bring tensors to a GPU and back\n"
         "  --switches FILE  measure what it costs to change between the settings of a file\n"
         "Prints a line a step: step NUMBER loss VALUE ms TIME.\n";
}

Options Options::Parse(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.compare(0, 2, "--") != 0) {
      if (!options.folder.empty()) Refuse("give one FOLDER");
      options.folder = word;
      continue;
    }
    if (word == "--trace" || word == "--crossings") {
      (word == "--trace" ? options.trace : options.crossings) = true;
      continue;
    }
    if (i + 1 == words.size()) Refuse(word + " is unknown, or needs a value");
    const std::string& value = words[++i];
    if (word == "--threads") {
      options.threads = WholeOption(word, value, 1, 1024);
    } else if (word == "--steps") {
      options.steps = static_cast<uint64_t>(WholeOption(word, value, 1, 999999999));
    } else if (word == "--settings") {
      options.settings = value;
    } else if (word == "--switches") {
      options.switches = value;
    } else {
      Refuse("unknown option " + word);
    }
  }
  if (options.folder.empty() == options.switches.empty()) {
    Refuse("give a FOLDER, or --switches");
  }
  return options;
}

}  // namespace step_runner
}  // namespace autotune
