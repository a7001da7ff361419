//! Compiled code by content, in the user's cache folder.
//!
//! One file an entry, named by the hash of all that the code depends on, holding a hash of itself before the code. Several processes may
//! use the folder at once: entries appear whole by renaming, and one that is gone or damaged is compiled again.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// Bytes that the user's cache holds at most.
const LIMIT: u64 = 512 << 20;
/// Half-written files of processes that are gone are removed after this long.
const ABANDONED: Duration = Duration::from_secs(3600);
const HASH: usize = 32;

/// A folder with compiled code, bounded: what was not used for longest goes first.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// What an entry is found by.
pub(crate) struct Key(String);

impl Key {
    /// Of texts that together decide what the code is.
    pub fn of(parts: &[&str]) -> Key {
        let mut hash = Sha256::new();
        for part in parts {
            // With lengths, so that no two lists give the same bytes.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Key(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Cache {
    /// The user's: `DOUSE_CACHE`, or `douse` in the folder for caches. `None` where neither is known, or `DOUSE_CACHE` is empty,
    /// which turns the cache off. Each compiler has a folder of its own there.
    pub fn user(compiler: &str) -> Option<Cache> {
        let folder = match std::env::var_os("DOUSE_CACHE") {
            Some(folder) if folder.is_empty() => return None,
            Some(folder) => PathBuf::from(folder),
            None => {
                let named = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
                let home = || Some(named("HOME")?.join(".cache"));
                named("XDG_CACHE_HOME").or_else(home).or_else(|| named("LOCALAPPDATA"))?.join("douse")
            }
        };
        Some(Cache::at(folder.join(compiler), LIMIT))
    }

    /// A folder of its own, with at most that many bytes. The folder is made when something is put into it.
    pub fn at(folder: PathBuf, limit: u64) -> Cache {
        Cache { folder, limit }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.folder.join(&key.0);
        let bytes = fs::read(&path).ok()?;
        let (hash, code) = bytes.split_at_checked(HASH)?;
        if *hash != *Sha256::digest(code) {
            return None;
        }
        // Used now; where the time cannot be set, the entry only goes earlier.
        let _ = File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(code.to_vec())
    }

    /// Keeps code. What goes wrong is logged: a cache is not needed to go on.
    pub(crate) fn put(&self, key: &Key, code: &[u8]) {
        if let Err(error) = self.try_put(key, code) {
            tracing::warn!("compiled code was not kept in {}: {error}", self.folder.display());
        }
    }

    fn try_put(&self, key: &Key, code: &[u8]) -> std::io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.folder)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let partial = self.folder.join(format!("{}.{}.{number}.partial", key.0, std::process::id()));
        let written = File::create(&partial).and_then(|mut file| {
            file.write_all(&Sha256::digest(code))?;
            file.write_all(code)
        });
        if let Err(error) = written.and_then(|()| fs::rename(&partial, self.folder.join(&key.0))) {
            let _ = fs::remove_file(&partial);
            return Err(error);
        }
        self.evict()
    }

    /// Removes the entries that were not used for longest until the rest is within the limit.
    fn evict(&self) -> std::io::Result<()> {
        let now = SystemTime::now();
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            // Another process may have removed it meanwhile.
            let Ok(about) = entry.metadata() else { continue };
            let (path, used) = (entry.path(), about.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            if path.extension().is_some() {
                if now.duration_since(used).is_ok_and(|age| age > ABANDONED) {
                    let _ = fs::remove_file(&path);
                }
            } else {
                entries.push((used, about.len(), path));
            }
        }
        let mut total: u64 = entries.iter().map(|(_, len, _)| len).sum();
        entries.sort();
        for (_, len, path) in entries {
            if total <= self.limit {
                break;
            }
            if fs::remove_file(&path).is_ok() {
                total -= len;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            Folder(std::env::temp_dir().join(format!("douse-cache-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn key(name: &str) -> Key {
        Key::of(&[name])
    }

    #[test]
    fn what_is_put_comes_back_and_what_is_damaged_does_not() {
        let folder = Folder::new("damage");
        let cache = Cache::at(folder.0.clone(), 1000);
        assert_eq!(cache.get(&key("a")), None);
        cache.put(&key("a"), b"code");
        assert_eq!(cache.get(&key("a")).as_deref(), Some(&b"code"[..]));
        let path = folder.0.join(key("a").0);
        let mut bytes = fs::read(&path).unwrap();
        bytes.pop();
        fs::write(&path, bytes).unwrap();
        assert_eq!(cache.get(&key("a")), None);
        cache.put(&key("a"), b"code");
        assert_eq!(cache.get(&key("a")).as_deref(), Some(&b"code"[..]));
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let folder = Folder::new("evict");
        let cache = Cache::at(folder.0.clone(), 3 * (HASH as u64 + 100));
        for (age, name) in [(30, "a"), (20, "b"), (10, "c")] {
            cache.put(&key(name), &[0; 100]);
            let file = File::options().append(true).open(folder.0.join(key(name).0)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        assert!(cache.get(&key("a")).is_some());
        cache.put(&key("d"), &[0; 100]);
        let kept = ["a", "b", "c", "d"].map(|name| cache.get(&key(name)).is_some());
        assert_eq!(kept, [true, false, true, true]);
    }

    #[test]
    fn keys_tell_lists_apart() {
        assert_ne!(Key::of(&["ab", "c"]).0, Key::of(&["a", "bc"]).0);
    }
}
