// SPDX-License-Identifier: Apache-2.0
//
// Conversions between floating-point formats, by their bits, for kernels on machines whose compiler
// support library has none for half precision. The names are those that TVM's sources ask for.
//
// A format is a type, its bits as an unsigned integer, and the digits of its fraction.
#ifndef AUTOTUNE_RUNTIME_SHIMS_BUILTIN_FP16_H_
#define AUTOTUNE_RUNTIME_SHIMS_BUILTIN_FP16_H_

#include <cstdint>
#include <cstring>

namespace autotune {

template <typename Bits, int kDigits>
struct FloatFormat {
  static constexpr int kWidth = 8 * static_cast<int>(sizeof(Bits));
  static constexpr int kMostExponent = (1 << (kWidth - 1 - kDigits)) - 1;  // infinity and NaN
  static constexpr int kBias = kMostExponent >> 1;
  static constexpr Bits kOne = 1;
  static constexpr Bits kHidden = static_cast<Bits>(kOne << kDigits);
  static constexpr Bits kFraction = static_cast<Bits>(kHidden - 1);
  static constexpr Bits kSign = static_cast<Bits>(kOne << (kWidth - 1));

  static int Exponent(Bits bits) { return static_cast<int>(bits >> kDigits) & kMostExponent; }
};

template <typename To, typename From>
To SameBits(From value) {
  static_assert(sizeof(To) == sizeof(From), "of one size");
  To bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

}  // namespace autotune

/// To a smaller format, to the nearest value, of two such to the even one.
template <typename Src, typename SrcBits, int kSrcDigits, typename Dst, typename DstBits,
          int kDstDigits>
Dst __truncXfYf2__(Src value) {
  using From = autotune::FloatFormat<SrcBits, kSrcDigits>;
  using To = autotune::FloatFormat<DstBits, kDstDigits>;
  const auto bits = autotune::SameBits<SrcBits>(value);
  const SrcBits infinity = static_cast<SrcBits>(To::kMostExponent) << kDstDigits;
  SrcBits fraction = bits & From::kFraction;
  int shift = kSrcDigits - kDstDigits;
  SrcBits result = 0;
  if (From::Exponent(bits) == From::kMostExponent) {
    // A NaN stays one, whatever of its fraction is lost.
    result = infinity | (fraction != 0 ? (To::kHidden >> 1) | (fraction >> shift) : 0);
  } else {
    if (From::Exponent(bits) != 0) fraction |= From::kHidden;
    const int exponent = From::Exponent(bits) - From::kBias + To::kBias;
    if (exponent < 1) shift += 1 - exponent;
    if (shift <= kSrcDigits + 1) {
      const SrcBits rest = fraction & ((From::kOne << shift) - 1);
      const SrcBits half = From::kOne << (shift - 1);
      result = fraction >> shift;
      if (rest > half || (rest == half && (result & 1) != 0)) ++result;
      // The hidden digit counts as one more in the exponent.
      if (exponent > 1) result += static_cast<SrcBits>(exponent - 1) << kDstDigits;
      if (result > infinity) result = infinity;
    }
  }
  const DstBits sign = (bits & From::kSign) != 0 ? To::kSign : DstBits{0};
  return autotune::SameBits<Dst>(static_cast<DstBits>(static_cast<DstBits>(result) | sign));
}

/// To a larger format, exactly.
template <typename Src, typename SrcBits, int kSrcDigits, typename Dst, typename DstBits,
          int kDstDigits>
Dst __extendXfYf2__(Src value) {
  using From = autotune::FloatFormat<SrcBits, kSrcDigits>;
  using To = autotune::FloatFormat<DstBits, kDstDigits>;
  const auto bits = autotune::SameBits<SrcBits>(value);
  DstBits fraction = bits & From::kFraction;
  int exponent = From::Exponent(bits) - From::kBias + To::kBias;
  if (From::Exponent(bits) == From::kMostExponent) {
    exponent = To::kMostExponent;
  } else if (From::Exponent(bits) == 0) {
    exponent = fraction == 0 ? 0 : exponent + 1;
    while (fraction != 0 && (fraction & From::kHidden) == 0) {
      fraction <<= 1;
      --exponent;
    }
    fraction &= From::kFraction;
  }
  const DstBits sign = (bits & From::kSign) != 0 ? To::kSign : DstBits{0};
  return autotune::SameBits<Dst>(static_cast<DstBits>(
      sign | (static_cast<DstBits>(exponent) << kDstDigits) |
      (fraction << (kDstDigits - kSrcDigits))));
}

#endif  // AUTOTUNE_RUNTIME_SHIMS_BUILTIN_FP16_H_
