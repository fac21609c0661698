#include "train/data/file_hash.h"

#include <fmt/format.h>
#include <sodium.h>

#include <array>
#include <fstream>
#include <vector>

#include "lockstep/error.h"

namespace lockstep::train {

namespace fs = std::filesystem;

std::optional<FileHash> hash_of(const fs::path& file) {
  constexpr size_t kPiece = size_t{1} << 18U;
  if (sodium_init() < 0) throw Error("libsodium: cannot be initialised");
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  std::ifstream stream(file, std::ios::binary);
  std::vector<char> piece(kPiece);
  crypto_hash_sha256_state state;
  crypto_hash_sha256_init(&state);
  FileHash hash{.bytes = 0, .sha256 = {}};
  while (stream) {
    stream.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    const auto count = static_cast<uint64_t>(stream.gcount());
    crypto_hash_sha256_update(&state, reinterpret_cast<const unsigned char*>(piece.data()), count);
    hash.bytes += count;
  }
  if (!stream.eof()) return std::nullopt;
  std::array<unsigned char, crypto_hash_sha256_BYTES> digest{};
  crypto_hash_sha256_final(&state, digest.data());
  for (const unsigned char byte : digest) hash.sha256 += fmt::format("{:02x}", byte);
  return hash;
}

}  // namespace lockstep::train
