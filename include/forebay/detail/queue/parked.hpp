// SPDX-License-Identifier: Apache-2.0
//! \file
//! Tokens while they are not used: in as few registers as they can be restored from.
#pragma once

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// `type` is what a token is parked as, and what a `Token` is restored from: `Token::parked` if that type exists, else
/// the token itself.
template <class Token>
struct parking {
  using type = Token;
  FOREBAY_DEVICE static type park(Token const& token) { return token; }
};
template <class Token>
  requires requires(Token const& token) { token.park(); }
struct parking<Token> {
  using type = typename Token::parked;
  FOREBAY_DEVICE static type park(Token const& token) { return token.park(); }
};

}  // namespace forebay
