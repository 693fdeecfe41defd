// SPDX-License-Identifier: Apache-2.0
// Logits of given tokens from llama.cpp, for compare.py.
// usage: logits MODEL TOKENS OUT THREADS (int32 in, float32 out)
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

namespace {

std::vector<llama_token> ReadTokens(const char* path) {
  std::vector<llama_token> tokens(1 << 16);
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) return {};
  tokens.resize(std::fread(tokens.data(), sizeof(llama_token), tokens.size(), file));
  std::fclose(file);
  return tokens;
}

llama_batch MakeBatch(const std::vector<llama_token>& tokens) {
  llama_batch batch = llama_batch_init(int32_t(tokens.size()), 0, 1);
  batch.n_tokens = int32_t(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = llama_pos(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  return batch;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  const std::vector<llama_token> tokens = ReadTokens(argv[2]);
  if (model == nullptr || tokens.empty()) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = uint32_t(tokens.size());
  params.n_threads = params.n_threads_batch = std::atoi(argv[4]);
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr || llama_decode(context, MakeBatch(tokens)) != 0) return 1;
  const auto vocab = size_t(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  std::FILE* out = std::fopen(argv[3], "wb");
  if (out == nullptr) return 1;
  size_t written = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    written += std::fwrite(llama_get_logits_ith(context, int32_t(i)), sizeof(float), vocab, out);
  }
  return std::fclose(out) == 0 && written == tokens.size() * vocab ? 0 : 1;
}
