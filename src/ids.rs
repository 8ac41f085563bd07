//! Names of things: random, short to type, never reused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Characters of an id: 80 random bits in lower-case base32 (RFC 4648 without padding).
pub const ID_LENGTH: usize = 16;

/// A text that is no id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is not an id ({ID_LENGTH} characters of a-z and 2-7)")]
pub struct NotAnId(pub String);

fn is_id(text: &str) -> bool {
    text.len() == ID_LENGTH && is_id_prefix(text)
}

/// Whether `text` could begin an id.
pub fn is_id_prefix(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= ID_LENGTH
        && text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))
}

fn random() -> String {
    let mut bytes = [0u8; 10];
    getrandom::fill(&mut bytes).expect("the kernel's random source answers");
    data_encoding::BASE32_NOPAD
        .encode(&bytes)
        .to_ascii_lowercase()
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// A new random one.
            pub fn random() -> Self {
                Self(random())
            }
            /// As text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl FromStr for $name {
            type Err = NotAnId;
            fn from_str(text: &str) -> Result<Self, NotAnId> {
                if is_id(text) { Ok(Self(text.to_owned())) } else { Err(NotAnId(text.to_owned())) }
            }
        }
        impl TryFrom<String> for $name {
            type Error = NotAnId;
            fn try_from(text: String) -> Result<Self, NotAnId> {
                if is_id(&text) { Ok(Self(text)) } else { Err(NotAnId(text)) }
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// What one operation kept in one way; the name of its directory in staging.
    EntryId
}
id! {
    /// One command as it was typed; its entries carry it.
    OperationId
}
id! {
    /// A workspace, written into its staging area when that is made.
    WorkspaceId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_differ() {
        let a = EntryId::random();
        assert_eq!(a.as_str().parse::<EntryId>(), Ok(a.clone()));
        assert_ne!(a, EntryId::random());
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in [
            "",
            "abc",
            "../../../../../..",
            "ABCDEFGHABCDEFGH",
            "abcdefghabcdefg1",
            "abcdefghabcdefgha",
        ] {
            assert!(text.parse::<EntryId>().is_err(), "{text}");
        }
    }
}
