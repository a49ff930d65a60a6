// SPDX-License-Identifier: Apache-2.0
#ifndef AUTOTUNE_SERVER_FOLDERS_H_
#define AUTOTUNE_SERVER_FOLDERS_H_

#include <string>

namespace autotune {
namespace server {

/// Makes a folder and those on the way to it, for this user only. Throws std::runtime_error.
void MakeFolders(const std::string& path);

/// Removes a folder with everything in it; links are removed, not followed.
void RemoveFolder(const std::string& path);

}  // namespace server
}  // namespace autotune

#endif  // AUTOTUNE_SERVER_FOLDERS_H_
