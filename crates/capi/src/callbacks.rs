//! Completions by callback: one thread for each stack whose calls ask for it. Callbacks run there, with nothing
//! locked, and may call anything of this library but `uc_stack_free` of the same stack.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use posix::embed::{CompletionRing, Reaped, without_signals};
use posix::errno::{Errno, Result};
use stack::Stack;

use crate::lending::uc_completion;

/// A function of the program's, told of each completion.
pub(crate) type Function = unsafe extern "C" fn(*const uc_completion);

/// Whom to tell, and what the program gave along.
pub(crate) struct Call {
    pub(crate) function: Function,
    pub(crate) user_data: usize,
}

/// Calls of one stack whose callbacks have not run: beyond, something is wrong with who frees the buffers.
const CAPACITY: usize = 1 << 20;
/// Callbacks run between two looks at the ring.
const BATCH: usize = 64;

/// What the thread and its callers share.
struct Desk {
    ring: CompletionRing<Call>,
    closing: AtomicBool,
}

struct Dispatcher {
    desk: Arc<Desk>,
    thread: JoinHandle<()>,
}

/// By the stack's number.
static DISPATCHERS: Mutex<Option<HashMap<u64, Dispatcher>>> = Mutex::new(None);

impl Desk {
    fn run(&self) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            if self.ring.reap(BATCH, |done| batch.push(done)) > 0 {
                batch.drain(..).for_each(tell);
                continue;
            }
            let over = || self.closing.load(Ordering::Acquire) && self.ring.unreaped() == 0;
            if over() {
                return;
            }
            // Nothing interrupts this thread: it takes no signals.
            let _ = self.ring.wait(None, over);
        }
    }
}

fn tell(done: Reaped<Call>) {
    let completion = uc_completion::new(done.ticket, done.reason, done.tag.user_data);
    // SAFETY: a function of the program's, of this type, which it gave for this call. Test:
    // crates/capi/examples/callbacks.c.
    unsafe { (done.tag.function)(&raw const completion) };
}

/// The ring of a stack's callbacks; its thread is started if there is none.
pub(crate) fn with_ring<R>(
    number: u64,
    find: impl FnOnce() -> Option<Stack>,
    use_it: impl FnOnce(&CompletionRing<Call>) -> R,
) -> Result<R> {
    let desk = {
        let mut all = DISPATCHERS.lock();
        let all = all.get_or_insert_default();
        match all.get(&number) {
            Some(known) => known.desk.clone(),
            None => {
                let stack = find().ok_or(Errno::NETDOWN)?;
                let ring = CompletionRing::new(&stack, CAPACITY);
                let desk = Arc::new(Desk { ring, closing: AtomicBool::new(false) });
                let thread = without_signals(|| {
                    let desk = desk.clone();
                    std::thread::Builder::new().name("uncopied-done".into()).spawn(move || desk.run())
                });
                let thread = thread.map_err(|_| Errno::AGAIN)?;
                all.insert(number, Dispatcher { desk: desk.clone(), thread });
                desk
            }
        }
    };
    Ok(use_it(&desk.ring))
}

/// Whether the calling thread is the one that runs the callbacks of a stack.
pub(crate) fn is_running_for(number: u64) -> bool {
    let me = std::thread::current().id();
    DISPATCHERS.lock().as_ref().and_then(|all| all.get(&number)).is_some_and(|d| d.thread.thread().id() == me)
}

/// Nothing of the stack is lent any more: the last callbacks run, and the thread ends.
pub(crate) fn finish(number: u64) {
    let Some(Dispatcher { desk, thread }) = DISPATCHERS.lock().as_mut().and_then(|all| all.remove(&number))
    else {
        return;
    };
    desk.closing.store(true, Ordering::Release);
    desk.ring.ring();
    // It can only have ended well.
    let _ = thread.join();
}
