//! What the driver is to be.

use crate::status::Status;

/// Options, by words: `memory=1000 fail=cuMemAlloc_v2:3:2 eager`.
#[derive(Clone, Debug)]
pub struct Config {
    /// `version=12080`: as `cuDriverGetVersion` gives it.
    pub version: i32,
    /// `capability=90`: major and minor. 0.0 is no GPU's: code for the target `soft` is chosen by it; 0.9: for `soft_90a`.
    pub capability: (i32, i32),
    /// `memory=BYTES` of the device.
    pub memory: u64,
    /// `fail=CALL:AT:STATUS` (any number of them): the AT-th of the call from now on returns STATUS and does nothing.
    pub failures: Vec<Injected>,
    /// `log=FILE`: a line for everything that is made, freed, copied, launched and waited for.
    pub log: Option<String>,
    /// `eager`: work runs when it is put on a stream.
    pub eager: bool,
    /// `reverse`: the last block and the last thread run first.
    pub reverse: bool,
    /// `report`: what is not freed when the process ends is written to standard error.
    pub report: bool,
}

/// A fault that is to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injected {
    pub call: String,
    /// How many calls are left until the one that fails, which is 1.
    pub at: u64,
    pub status: Status,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            version: 13000,
            capability: (0, 0),
            memory: 16 << 30,
            failures: Vec::new(),
            log: None,
            eager: false,
            reverse: false,
            report: false,
        }
    }
}

impl Config {
    /// Changes what the words say.
    ///
    /// # Errors
    /// The word that means nothing.
    pub fn apply(&mut self, words: &str) -> Result<(), String> {
        for word in words.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            self.set(key, value).ok_or_else(|| format!("softgpu: {word:?} is no option"))?;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "version" => self.version = value.parse().ok()?,
            "capability" => {
                let number: i32 = value.parse().ok()?;
                self.capability = (number / 10, number % 10);
            }
            "memory" => self.memory = value.parse().ok()?,
            "fail" => {
                let mut parts = value.split(':');
                let call = parts.next()?.to_owned();
                self.failures.push(Injected {
                    call,
                    at: parts.next()?.parse().ok()?,
                    status: parts.next()?.parse().ok()?,
                });
            }
            "log" => self.log = Some(value.to_owned()),
            "eager" => self.eager = true,
            "reverse" => self.reverse = true,
            "report" => self.report = true,
            _ => return None,
        }
        Some(())
    }

    /// Whether a call fails by order.
    pub fn injected(&mut self, call: &str) -> Option<Status> {
        let mut found = None;
        for injected in self.failures.iter_mut().filter(|injected| injected.call == call && injected.at > 0) {
            injected.at -= 1;
            if injected.at == 0 {
                found = Some(injected.status);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_others_refused() {
        let mut config = Config::default();
        config.apply("memory=1000 capability=89 fail=cuInit:2:719 fail=cuInit:3:2 eager").unwrap();
        assert_eq!((config.memory, config.capability, config.eager), (1000, (8, 9), true));
        assert_eq!([(); 4].map(|()| config.injected("cuInit")), [None, Some(719), Some(2), None]);
        assert_eq!(config.injected("cuMemAlloc_v2"), None);
        for word in ["memory=x", "fail=cuInit", "nothing"] {
            assert!(Config::default().apply(word).unwrap_err().contains(word));
        }
    }
}
