// SPDX-License-Identifier: Apache-2.0
//
// Numbers of TVM's handshake.
#ifndef AUTOTUNE_SERVER_PROTOCOL_H_
#define AUTOTUNE_SERVER_PROTOCOL_H_

#include <cstdint>

namespace autotune {
namespace server {

constexpr int32_t kMagic = 0xff271;
constexpr int32_t kMismatch = kMagic + 2;

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_PROTOCOL_H_
