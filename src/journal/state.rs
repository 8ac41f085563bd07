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
    /// Every state, in the order of the flow.
    pub const ALL: [Self; 10] = [
        Self::Open,
        Self::Sealed,
        Self::Reserved,
        Self::Uploaded,
        Self::Ready,
        Self::Trashed,
        Self::Released,
        Self::Restored,
        Self::Expired,
        Self::Discarded,
    ];

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

    /// The staged bytes were freed, the hosted copy is what there is.
    pub fn is_released(self) -> bool {
        self == Self::Released
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

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 10] = [
        Event::Seal,
        Event::Reserve,
        Event::Upload,
        Event::Verify,
        Event::Commit,
        Event::Release,
        Event::Restore,
        Event::Expire,
        Event::Discard,
        Event::Changed,
    ];

    /// Rows: states; columns: [`EVENTS`]. `-` illegal, else the first two letters of what follows.
    const TABLE: [(&str, &str); 10] = [
        ("open", "se - - - - - - - - -"),
        ("sealed", "se re - - - - RE EX DI se"),
        ("reserved", "- re up - - - RE - DI se"),
        ("uploaded", "- - up ry - - RE - DI se"),
        ("ready", "- - - ry tr - RE - - se"),
        ("trashed", "- - - - tr rl RE EX - -"),
        ("released", "- - - - - rl RE EX - -"),
        ("restored", "- - - - - - RE - - -"),
        ("expired", "- - - - - - - EX - -"),
        ("discarded", "- - - - - - - - DI -"),
    ];

    fn short(state: State) -> &'static str {
        match state {
            State::Open => "op",
            State::Sealed => "se",
            State::Reserved => "re",
            State::Uploaded => "up",
            State::Ready => "ry",
            State::Trashed => "tr",
            State::Released => "rl",
            State::Restored => "RE",
            State::Expired => "EX",
            State::Discarded => "DI",
        }
    }

    #[test]
    fn every_pair_does_what_the_table_says() {
        for (state, (name, row)) in State::ALL.into_iter().zip(TABLE) {
            assert_eq!(state.as_str(), name);
            for (event, expected) in EVENTS.into_iter().zip(row.split(' ')) {
                let after = state.after(event).map_or("-", short);
                assert_eq!(after, expected, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn an_event_applied_twice_changes_nothing_more() {
        for state in State::ALL {
            for event in EVENTS {
                if let Ok(after) = state.after(event) {
                    assert_eq!(after.after(event), Ok(after), "{state:?} {event:?}");
                }
            }
        }
    }

    #[test]
    fn ends_are_ends() {
        for state in State::ALL.into_iter().filter(|s| s.is_end()) {
            assert!(!state.is_whole());
            for event in EVENTS {
                assert!(state.after(event).is_err() || state.after(event) == Ok(state));
            }
        }
    }

    #[test]
    fn names_in_json_are_those_of_the_journal() {
        for state in State::ALL {
            let json = serde_json::to_value(state).unwrap();
            assert_eq!(json, state.as_str());
        }
    }
}
