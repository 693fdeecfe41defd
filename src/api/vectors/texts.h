// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "api/errors.h"
#include "api/fields.h"
#include "api/served_model.h"
#include "base/account/account.h"

namespace reprise::api::vectors {

inline constexpr size_t kTextsMax = 2048;  // of one request, as OpenAI has it

// The member `name`: a text, token ids, or several of either. Texts are text, whatever they spell.
// `cut`: those that are too long for the model lose their end. Errors stay in `fields`.
void ReadTexts(const ServedModel& model, std::string_view name, bool cut, Account* account,
               Fields* fields, std::vector<std::vector<TokenId>>* texts);

// A text of about so many tokens is too long.
ApiError TextTooLong(const ServedModel& model, int64_t tokens);

// The first `dimensions` (0: all) of a vector, made one long.
std::vector<float> Normalised(std::vector<float> vector, int32_t dimensions);

// Little-endian floats, which OpenAI's clients ask for in base64.
std::string BytesOf(const std::vector<float>& vector);

}  // namespace reprise::api::vectors
