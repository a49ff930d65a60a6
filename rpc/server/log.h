// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_SERVER_LOG_H_
#define AUTOTUNE_SERVER_LOG_H_

#include <string>

namespace autotune {
namespace server {

/// One line with the time on stderr, which a daemon's log file stands behind. The file is begun
/// again when it is over a megabyte.
void Log(const std::string& line);

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_LOG_H_
