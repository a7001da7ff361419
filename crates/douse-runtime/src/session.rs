//! What a program keeps from call to call: its written buffers and its random numbers' place.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;

use crate::cuda::{CudaDevice, DeviceState};
use douse_core::{Aligned, Code, Error, Result};
use douse_cpu::State;
use douse_program::container::ptd;

/// State of a caller's own. Weights are shared; methods of one program that run in one session share the state they name
/// alike (a prefill and a decode step over one cache).
///
/// A new session begins with the initial values of each method that runs in it. A clone goes on by itself.
///
/// A call that fails on the device once it has begun (a fault of the device, not a check of the program) breaks its session: nobody knows what
/// the call has written. Later calls in it are refused with `InvalidState`, until it is [`reset`](Session::reset). Other sessions go on.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// State on the host.
    pub(crate) state: State,
    /// State on a device: the newer one, where both have a name.
    device: Option<Box<DeviceState>>,
    /// From the operating system at the first call, unless given.
    seed: Option<u64>,
    calls: u64,
}

/// The key of the seed and the number of calls in a saved session; no buffer of a program has such a name.
const RANDOM: &str = "/random";

fn check_size(name: &str, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let message = format!("the session holds {found} bytes for the state {name}, the method keeps {expected}");
    Err(Error::new(Code::InvalidState, message))
}

/// Of every entry of a saved session.
const ALIGNMENT: u64 = 64;

impl Session {
    /// State as before the first call, and a seed from the operating system.
    pub fn new() -> Session {
        Session::default()
    }

    /// State as before the first call, and this seed for random numbers.
    pub fn with_seed(seed: u64) -> Session {
        Session { seed: Some(seed), ..Session::default() }
    }

    /// Begins anew: initial values, and random numbers from the same seed.
    pub fn reset(&mut self) {
        *self = Session { seed: self.seed, ..Session::default() };
    }

    /// Names and bytes of the state so far, sorted by name; copied from the device that it is on.
    ///
    /// # Errors
    /// What the device's driver says.
    pub fn states(&self) -> Result<Vec<(String, Aligned)>> {
        let mut state = self.state.clone();
        if let Some(device) = &self.device {
            device.to_host(&mut state)?;
        }
        state.iter().map(|(name, bytes)| Ok((name.to_owned(), Aligned::copy(bytes)?))).collect()
    }

    /// Brings the state back from a device.
    pub(crate) fn move_to_host(&mut self) -> Result<()> {
        if let Some(device) = &self.device {
            device.to_host(&mut self.state)?;
            self.device = None;
        }
        Ok(())
    }

    /// Brings a method's state to a device: what the session has of it, and the initial values of the rest.
    pub(crate) fn move_to_device<'a>(
        &mut self,
        device: &CudaDevice,
        initial: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
    ) -> Result<&mut DeviceState> {
        if self.device.as_ref().is_some_and(|state| !state.is_on(device)) {
            self.move_to_host()?;
        }
        let state = self.device.get_or_insert_with(|| Box::new(DeviceState::new(device)));
        state.check()?;
        if state.holds(initial.clone()) {
            return Ok(state);
        }
        for (name, bytes) in initial {
            let known = state.len(name).or_else(|| self.state.get_mut(name).map(|bytes| bytes.len()));
            check_size(name, known.unwrap_or(bytes.len()), bytes.len())?;
            if state.len(name).is_none() {
                state.insert(name, self.state.get_mut(name).map_or(bytes, |bytes| &*bytes))?;
            }
        }
        Ok(state)
    }

    /// The seed, drawn now where there is none yet, and the number of this call.
    pub(crate) fn random(&mut self) -> (u64, u64) {
        // A hasher's keys come from the operating system's random numbers, and no two hashers of a process have the same; a process that
        // another forked would go on with that one's.
        let seed = self.seed.get_or_insert_with(|| RandomState::new().hash_one(std::process::id()));
        (*seed, self.calls)
    }

    /// Counts a call that succeeded.
    pub(crate) fn advance(&mut self) {
        self.calls = self.calls.wrapping_add(1);
    }

    /// Takes over the initial values of what the session does not hold yet, and checks those that it does.
    pub(crate) fn adopt(&mut self, initial: impl FnOnce() -> State, expected: &[(String, usize)]) -> Result<()> {
        let mut missing = false;
        for (name, bytes) in expected {
            match self.state.get_mut(name).map(|b| b.len()) {
                None => missing = true,
                Some(found) => check_size(name, found, *bytes)?,
            }
        }
        if missing {
            self.state.merge(initial());
        }
        Ok(())
    }

    /// Writes the session to a file, whole or not at all.
    ///
    /// # Errors
    /// `AccessFailed` with the path.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut random = Vec::new();
        random.push(u8::from(self.seed.is_some()));
        random.extend(self.seed.unwrap_or_default().to_le_bytes());
        random.extend(self.calls.to_le_bytes());
        let mut writer = ptd::Writer::new();
        writer.data(RANDOM, None, random, ALIGNMENT)?;
        let states = self.states()?;
        for (name, bytes) in &states {
            writer.data(name, None, &**bytes, ALIGNMENT)?;
        }
        writer.save(path)?;
        Ok(())
    }

    /// Reads a session that [`save`](Session::save) wrote. Whether it fits a method is checked when the method runs in it.
    ///
    /// # Errors
    /// `AccessFailed` or `InvalidExternalData` with the path.
    pub fn restore(path: &Path) -> Result<Session> {
        let file = ptd::File::open(path)?;
        let damaged = || {
            let message = format!("{}: not a saved session", path.display());
            Error::new(Code::InvalidExternalData, message)
        };
        let random = file.data(RANDOM).map_err(|_| damaged())?;
        let word = |at: usize| -> Result<u64> {
            let bytes = random.get(at..at + 8).and_then(|b| b.try_into().ok());
            bytes.map(u64::from_le_bytes).ok_or_else(damaged)
        };
        let seed = match random.first() {
            Some(0) => None,
            Some(1) => Some(word(1)?),
            _ => return Err(damaged()),
        };
        let mut session = Session { seed, calls: word(9)?, ..Session::default() };
        for name in file.keys().filter(|key| *key != RANDOM) {
            session.state.insert(name.to_owned(), Aligned::copy(file.data(name)?)?);
        }
        Ok(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_session_comes_back() {
        let path = std::env::temp_dir().join(format!("douse-session-{}.ptd", std::process::id()));
        let mut session = Session::with_seed(7);
        session.state.insert("cache".into(), Aligned::copy(&[1, 2, 3]).unwrap());
        session.advance();
        session.save(&path).unwrap();
        let mut back = Session::restore(&path).unwrap();
        assert_eq!(
            back.states().unwrap().iter().map(|(n, b)| (n.as_str(), &**b)).collect::<Vec<_>>(),
            [("cache", &[1u8, 2, 3][..])]
        );
        assert_eq!(back.random(), (7, 1));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Session::restore(&path).unwrap_err().code, Code::AccessFailed);
    }

    #[test]
    fn state_of_another_size_is_refused_and_missing_state_adopted() {
        let initial = || {
            let mut state = State::default();
            state.insert("cache".into(), Aligned::copy(&[9; 4]).unwrap());
            state
        };
        let mut session = Session::new();
        session.adopt(initial, &[("cache".into(), 4)]).unwrap();
        assert_eq!(
            session.states().unwrap().iter().map(|(n, b)| (n.as_str(), &**b)).collect::<Vec<_>>(),
            [("cache", &[9u8; 4][..])]
        );
        let error = session.adopt(initial, &[("cache".into(), 5)]).unwrap_err();
        assert!(error.code == Code::InvalidState && error.message.contains("4 bytes for the state cache"), "{error}");
    }

    #[test]
    fn seeds_differ_and_stay() {
        let (mut a, mut b) = (Session::new(), Session::new());
        let seed = a.random();
        assert_ne!(seed, b.random());
        a.advance();
        assert_eq!(a.random(), (seed.0, 1));
        a.reset();
        assert_eq!(a.random(), seed);
    }
}
