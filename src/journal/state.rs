//! The life of an entry: one enum of states, one of events, one total transition function,
//! used by writing, replay and recovery alike.

use serde::{Deserialize, Serialize};

/// How far an entry has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Captures are still being added.
    Open,
    /// Complete and at rest in staging. The local profile's entries stay here.
    Sealed,
    /// The hosted index has a reservation for it.
    Reserved,
    /// The capsule is in the object store, not yet verified.
    Uploaded,
    /// The capsule is verified.
    Ready,
    /// The hosted index has committed the removal.
    Trashed,
    /// Resident bytes were freed after the commit was verified again.
    Released,
    /// Everything went back, or was taken back by a person. An end.
    Restored,
    /// Its retention or the budget ended it. An end.
    Expired,
    /// A person gave it up. An end.
    Discarded,
}

/// What can happen to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(
    missing_docs,
    reason = "each names the state that it leads to, or its undoing"
)]
pub enum Event {
    Seal,
    Reserve,
    Upload,
    Verify,
    Commit,
    Release,
    Restore,
    Expire,
    Discard,
    /// Staged bytes changed while they were shipped: they are kept and shipped again.
    Changed,
}

/// An event that the state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} is not possible in state {state:?}")]
pub struct Illegal {
    /// State it met.
    pub state: State,
    /// Event that came.
    pub event: Event,
}

impl State {
    /// The state after `event`.
    ///
    /// An event that was already applied leaves the state as it is, so that replay and recovery
    /// may repeat themselves.
    ///
    /// # Errors
    /// [`Illegal`] for every other pair.
    pub fn after(self, event: Event) -> Result<Self, Illegal> {
        use Event as E;
        use State as S;
        match (self, event) {
            (S::Open | S::Sealed, E::Seal) => Ok(S::Sealed),
            (S::Sealed | S::Reserved, E::Reserve) => Ok(S::Reserved),
            (S::Reserved | S::Uploaded, E::Upload) => Ok(S::Uploaded),
            (S::Uploaded | S::Ready, E::Verify) => Ok(S::Ready),
            (S::Ready | S::Trashed, E::Commit) => Ok(S::Trashed),
            (S::Trashed | S::Released, E::Release) => Ok(S::Released),
            (S::Reserved | S::Uploaded | S::Ready | S::Sealed, E::Changed) => Ok(S::Sealed),
            (S::Restored, E::Restore) => Ok(S::Restored),
            (S::Expired, E::Expire) => Ok(S::Expired),
            (S::Discarded, E::Discard) => Ok(S::Discarded),
            (s, E::Restore) if s.is_whole() => Ok(S::Restored),
            (S::Sealed | S::Trashed | S::Released, E::Expire) => Ok(S::Expired),
            (S::Sealed | S::Reserved | S::Uploaded, E::Discard) => Ok(S::Discarded),
            (state, event) => Err(Illegal { state, event }),
        }
    }

    /// Complete, and restorable from somewhere.
    pub fn is_whole(self) -> bool {
        !matches!(
            self,
            Self::Open | Self::Restored | Self::Expired | Self::Discarded
        )
    }

    /// Nothing more can happen.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Restored | Self::Expired | Self::Discarded)
    }

    /// As in JSON and in the journal.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Sealed => "sealed",
            Self::Reserved => "reserved",
            Self::Uploaded => "uploaded",
            Self::Ready => "ready",
            Self::Trashed => "trashed",
            Self::Released => "released",
            Self::Restored => "restored",
            Self::Expired => "expired",
            Self::Discarded => "discarded",
        }
    }
}
