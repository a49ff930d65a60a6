// SPDX-License-Identifier: Apache-2.0
//
// The little JSON that is written here: one flat object or list at a time.
#ifndef AUTOTUNE_COMMON_JSON_WRITER_H_
#define AUTOTUNE_COMMON_JSON_WRITER_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace autotune {

/// A JSON string literal. Bytes outside ASCII become '?': driver strings are not always UTF-8.
inline std::string JsonString(const std::string& text) {
  std::string out = "\"";
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte == '"' || byte == '\\') {
      out += '\\';
      out += character;
    } else if (byte < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
      out += escaped;
    } else {
      out += byte < 0x7f ? character : '?';
    }
  }
  return out + "\"";
}

/// A JSON number that reads back as the same double.
inline std::string JsonReal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

/// Joins already written values into a JSON list.
inline std::string JsonList(const std::vector<std::string>& values) {
  std::string out = "[";
  for (const std::string& value : values) {
    if (out.size() > 1) out += ", ";
    out += value;
  }
  return out + "]";
}

/// Collects the members of one JSON object in the order given.
class JsonObject {
 public:
  JsonObject& Text(const char* key, const std::string& value) {
    return Raw(key, JsonString(value));
  }
  JsonObject& Number(const char* key, uint64_t value) { return Raw(key, std::to_string(value)); }
  JsonObject& Flag(const char* key, bool value) { return Raw(key, value ? "true" : "false"); }
  JsonObject& Raw(const char* key, const std::string& json) {
    if (!members_.empty()) members_ += ", ";
    members_ += JsonString(key) + ": " + json;
    return *this;
  }
  std::string str() const { return "{" + members_ + "}"; }

 private:
  std::string members_;
};

}  // namespace autotune

#endif  // AUTOTUNE_COMMON_JSON_WRITER_H_
