// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_SERVER_VERSION_H_
#define AUTOTUNE_SERVER_VERSION_H_

namespace autotune {
namespace server {

/// Of the server's command line and functions; the host refuses a server of another one.
constexpr const char* kVersion = "1";

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_VERSION_H_
