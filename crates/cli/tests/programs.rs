//! Programs nobody here wrote, run by `uncopied run` in private networks against the host's kernel. What they
//! move is checked by hash.
//!
//! They come from Debian's packages (see `.ci/run`). A program that is missing is reported and its test
//! skipped, unless `UNCOPIED_REQUIRE_PROGRAMS` is set, as CI does.

use std::ffi::OsStr;
use std::io::Read;
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use uncopied::netns::enter_private_net;
use uncopied::tap::TapConfig;

const KERNEL: &str = "10.77.0.1";
const OURS: &str = "10.77.0.2";
/// Size of transferred files. `UNCOPIED_TEST_BYTES` overrides it.
const FILE: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test in a private network with a TAP `uc0`. As root it must be possible.
fn in_private_net(programs: &[&str], test: impl FnOnce() + Send + 'static) {
    let missing: Vec<&&str> = programs.iter().filter(|p| which(p).is_none()).collect();
    if !missing.is_empty() {
        assert!(std::env::var_os("UNCOPIED_REQUIRE_PROGRAMS").is_none(), "not installed: {missing:?}");
        eprintln!("SKIPPED: not installed: {missing:?}");
        return;
    }
    let root = rustix::process::geteuid().is_root();
    std::thread::spawn(move || match enter_private_net() {
        Ok(net) => {
            let config = TapConfig { name: "uc0".into(), ..TapConfig::default() };
            let addresses: [(IpAddr, u8); 2] =
                [(KERNEL.parse().unwrap(), 24), ("fd77::1".parse().unwrap(), 64)];
            let tap = net.tap(config, &addresses).unwrap();
            tap.persist_for_owner().unwrap();
            drop(tap);
            test();
        }
        Err(e) if root => panic!("root, and yet: {e}"),
        Err(e) => eprintln!("SKIPPED: {e}"),
    })
    .join()
    .unwrap();
}

fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")])
        .map(|dir| dir.join(program))
        .find(|p| p.is_file())
}

/// `uncopied run` on the TAP of the private network.
fn ours<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uncopied"));
    command.args(["run", "--tap", "uc0", "--addr", "10.77.0.2/24", "--addr", "fd77::2/64", "--"]);
    command.arg(which(program).unwrap_or_else(|| program.into())).args(arguments);
    command
}

fn kernel(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(which(program).unwrap_or_else(|| program.into()));
    command.args(arguments);
    command
}

/// A process that ends with its test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn output(mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.stdout.take().unwrap().read_to_end(&mut out).unwrap();
        let status = self.0.wait().unwrap();
        assert!(status.success(), "{status}");
        out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let end = Instant::now() + Duration::from_secs(10);
        while self.0.try_wait().is_ok_and(|s| s.is_none()) {
            if Instant::now() > end {
                let _ = self.0.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Runs to the end, which must be a success and come in time.
fn succeed(command: &mut Command) -> Output {
    let out = finish(command);
    assert!(
        out.status.success(),
        "{command:?}: {}\n{}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

fn finish(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    });
    let out = child.wait_with_output().unwrap();
    drop(done);
    watchdog.join().unwrap();
    out
}

/// Waits until somebody accepts connections there; they see one that ends at once.
fn await_server(host: &str, port: u16) {
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect((host, port)).is_err() {
        assert!(Instant::now() < end, "nobody listens on {host}:{port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A directory with a file of noise in it, and the file's hash.
struct Files {
    dir: PathBuf,
    hash: String,
}

impl Files {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let size = std::env::var("UNCOPIED_TEST_BYTES").map_or(FILE, |n| n.parse().unwrap());
        let mut bytes = Vec::with_capacity(size);
        let mut x = 0x9e37_79b9_7f4a_7c15_u64;
        while bytes.len() < size {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            bytes.extend_from_slice(&x.to_le_bytes());
        }
        bytes.truncate(size);
        std::fs::write(dir.join("file"), &bytes).unwrap();
        std::fs::write(dir.join("index.html"), "hello\n").unwrap();
        Self { dir, hash: hash(&bytes) }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn hash(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

fn hash_of(path: &str) -> String {
    hash(&std::fs::read(path).unwrap())
}

/// A web server of the kernel's side.
fn web_server(files: &Files) -> Running {
    let mut command =
        kernel("python3", &["-m", "http.server", "8000", "--directory", files.dir.to_str().unwrap()]);
    let server = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    await_server(KERNEL, 8000);
    server
}

#[test]
fn sockets_do_what_they_do_on_linux() {
    in_private_net(&["python3"], || {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/sockets.py");
        let _peer = Running::start(&mut kernel("python3", &[script, "peer"]));
        await_server(KERNEL, 7006);
        // The expectations hold on Linux itself, or they are wrong.
        succeed(&mut kernel("python3", &[script, "127.0.0.1"]));
        succeed(&mut ours("python3", &[script, KERNEL]));
    });
}

#[test]
fn memory_taken_away_while_lent_is_sent_as_it_was() {
    in_private_net(&["cc"], || {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("takeaway");
        let program = program.to_str().unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/takeaway.c");
        succeed(&mut kernel("cc", &["-O2", "-Wall", "-o", program, source]));
        for how in ["munmap", "mremap", "dontneed", "remap", "free", "realloc"] {
            let mut receiver = kernel(program, &["recv", "9000"]);
            let receiver = Running::start(receiver.stdout(Stdio::piped()));
            let sent = until_success(|| finish(&mut ours(program, &["send", KERNEL, "9000", how])));
            let says = String::from_utf8_lossy(&sent.stderr).into_owned();
            assert!(!says.contains("unmapped 0 of"), "{how}: nothing was taken away in time");
            assert_eq!(
                String::from_utf8(receiver.output()).unwrap(),
                String::from_utf8(sent.stdout).unwrap(),
                "{how}"
            );
        }
    });
}

#[test]
fn curl_and_wget_fetch_a_file() {
    in_private_net(&["curl", "wget", "python3"], || {
        let files = Files::new("fetch");
        let _server = web_server(&files);
        let url = format!("http://{KERNEL}:8000/file");
        for fetch in [
            &["curl", "-sS", "-o", &files.path("curl"), &url][..],
            &["wget", "-q", "-O", &files.path("wget"), &url],
        ] {
            succeed(&mut ours(fetch[0], &fetch[1..]));
            assert_eq!(hash_of(&files.path(fetch[0])), files.hash, "{}", fetch[0]);
        }
    });
}

#[test]
fn iperf3_measures_both_ways() {
    in_private_net(&["iperf3"], || {
        let kernel_to: fn(&[&str]) -> Command = |a| kernel("iperf3", a);
        let ours_to: fn(&[&str]) -> Command = |a| ours("iperf3", a);
        for (server, client, host, six) in
            [(kernel_to, ours_to, KERNEL, "fd77::1"), (ours_to, kernel_to, OURS, "fd77::2")]
        {
            let _server = Running::start(server(&["-s"]).stdout(Stdio::null()));
            for extra in
                [&["-c", host][..], &["-c", host, "-R"], &["-c", host, "-P", "8"], &["-6", "-c", six]]
            {
                // A connection to see whether it listens would count as a client.
                until_success(|| finish(client(extra).args(["-t", "1"])));
            }
        }
    });
}

/// Tries again while the other side is not ready yet.
fn until_success(attempt: impl Fn() -> Output) -> Output {
    let end = Instant::now() + PATIENCE;
    loop {
        let out = attempt();
        if out.status.success() {
            return out;
        }
        let says = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(Instant::now() < end, "{}: {says}", out.status);
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn nginx_serves_with_two_workers() {
    in_private_net(&["nginx", "wrk", "curl"], || {
        let files = Files::new("nginx");
        for sendfile in ["on", "off"] {
            let config = format!(
                "worker_processes 2; pid {0}/pid; error_log {0}/error.log; daemon off; user root;
                 events {{ worker_connections 512; }}
                 http {{ access_log off; sendfile {sendfile};
                         server {{ listen 80; listen [::]:80; root {0}; }} }}",
                files.dir.display()
            );
            std::fs::write(files.path("nginx.conf"), config).unwrap();
            let _server =
                Running::start(ours("nginx", &["-c", &files.path("nginx.conf")]).stderr(Stdio::null()));
            await_server(OURS, 80);
            let out = files.path("fetched");
            succeed(&mut kernel("curl", &["-sS", "-o", &out, &format!("http://{OURS}/file")]));
            assert_eq!(hash_of(&out), files.hash, "sendfile {sendfile}");
            let six = succeed(&mut kernel("curl", &["-sS", "http://[fd77::2]/index.html"]));
            assert_eq!(six.stdout, b"hello\n");
            let wrk = succeed(&mut kernel(
                "wrk",
                &["-c", "100", "-t", "2", "-d", "2", &format!("http://{OURS}/index.html")],
            ));
            let report = String::from_utf8_lossy(&wrk.stdout).into_owned();
            assert!(report.contains("requests in") && !report.contains("Socket errors"), "{report}");
        }
    });
}

#[test]
fn python_serves_and_echoes() {
    in_private_net(&["python3", "curl"], || {
        let files = Files::new("python");
        let arguments = ["-m", "http.server", "8000", "--directory", files.dir.to_str().unwrap()];
        let _server = Running::start(ours("python3", &arguments).stdout(Stdio::null()).stderr(Stdio::null()));
        await_server(OURS, 8000);
        let out = files.path("fetched");
        succeed(&mut kernel("curl", &["-sS", "-o", &out, &format!("http://{OURS}:8000/file")]));
        assert_eq!(hash_of(&out), files.hash);
    });
    in_private_net(&["python3"], || {
        let echo = "
import asyncio
async def echo(r, w):
    while data := await r.read(65536):
        w.write(data)
        await w.drain()
    w.close()
async def main():
    async with await asyncio.start_server(echo, '0.0.0.0', 9005) as s:
        await s.serve_forever()
asyncio.run(main())";
        let _server = Running::start(ours("python3", &["-c", echo]).stderr(Stdio::null()));
        await_server(OURS, 9005);
        let stream = TcpStream::connect((OURS, 9005)).unwrap();
        let data: Vec<u8> = (0..8_000_000u32).map(|n| (n >> 3) as u8).collect();
        let (sent, mut writer) = (data.clone(), stream.try_clone().unwrap());
        let sender = std::thread::spawn(move || {
            std::io::Write::write_all(&mut writer, &sent).unwrap();
            writer.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back).unwrap();
        sender.join().unwrap();
        assert!(back == data);
    });
}

#[test]
fn redis_on_either_side() {
    in_private_net(&["redis-server", "redis-benchmark"], || {
        let server = ["--port", "6379", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""];
        let load = |host| ["-h", host, "-c", "50", "-P", "16", "-n", "20000", "-t", "set,get", "-q"];
        for (server, client, host) in [
            (ours("redis-server", &server), kernel("redis-benchmark", &load(OURS)), OURS),
            (kernel("redis-server", &server), ours("redis-benchmark", &load(KERNEL)), KERNEL),
        ] {
            let (mut server, mut client) = (server, client);
            let _server = Running::start(server.stdout(Stdio::null()));
            await_server(host, 6379);
            let out = succeed(&mut client);
            assert!(String::from_utf8_lossy(&out.stdout).contains("GET: "), "{host}");
        }
    });
}

#[test]
fn socat_and_nc_move_files() {
    in_private_net(&["socat", "nc"], || {
        let files = Files::new("socat");
        let (file, got) = (files.path("file"), files.path("got"));
        // From us to the kernel, then from the kernel to us. The receiver may need a moment.
        type Side = fn(&str, &[&str]) -> Command;
        let sides: [(Side, Side, &str); 2] =
            [(|p, a| ours(p, a), kernel, KERNEL), (kernel, |p, a| ours(p, a), OURS)];
        for (from, to, host) in sides {
            let receiver = Running::start(&mut to(
                "socat",
                &["-u", "TCP-LISTEN:9000,reuseaddr", &format!("CREATE:{got}")],
            ));
            succeed(&mut from(
                "socat",
                &["-u", &format!("OPEN:{file}"), &format!("TCP:{host}:9000,retry=100,interval=0.1")],
            ));
            wait_for_end(receiver);
            assert_eq!(hash_of(&got), files.hash, "socat to {host}");

            let out = std::fs::File::create(&got).unwrap();
            let receiver = Running::start(to("nc", &["-l", "9001"]).stdin(Stdio::null()).stdout(out));
            let end = Instant::now() + PATIENCE;
            loop {
                let input = std::fs::File::open(&file).unwrap();
                let status =
                    from("nc", &["-N", host, "9001"]).stdin(input).stderr(Stdio::null()).status().unwrap();
                if status.success() {
                    break;
                }
                assert!(Instant::now() < end, "nc to {host}: {status}");
                std::thread::sleep(Duration::from_millis(100));
            }
            wait_for_end(receiver);
            assert_eq!(hash_of(&got), files.hash, "nc to {host}");
        }
    });
}

fn wait_for_end(mut process: Running) {
    let end = Instant::now() + PATIENCE;
    while process.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Linux's own test of the feature, from the package `linux-source-6.1`.
#[test]
fn linux_s_own_zerocopy_test_says_zc_y() {
    const SOURCE: &str = "/usr/src/linux-source-6.1.tar.xz";
    if !Path::new(SOURCE).exists() {
        assert!(std::env::var_os("UNCOPIED_REQUIRE_PROGRAMS").is_none(), "not installed: linux-source-6.1");
        eprintln!("SKIPPED: not installed: linux-source-6.1");
        return;
    }
    in_private_net(&["cc", "tar", "xz"], || {
        let dir = env!("CARGO_TARGET_TMPDIR");
        let program = format!("{dir}/msg_zerocopy");
        if !Path::new(&program).exists() {
            let file = "linux-source-6.1/tools/testing/selftests/net/msg_zerocopy.c";
            succeed(&mut kernel("tar", &["-xJf", SOURCE, "-C", dir, "--occurrence=1", file]));
            succeed(&mut kernel("cc", &["-O2", "-o", &program, &format!("{dir}/{file}")]));
        }
        for (family, kernel_addr, our_addr) in [("-4", KERNEL, OURS), ("-6", "fd77::1", "fd77::2")] {
            for lend in [&[][..], &["-z"]] {
                for we_send in [true, false] {
                    let to = if we_send { kernel_addr } else { our_addr };
                    let rx = [family, "-t", "4", "-S", to, "-D", to, "-r", "tcp"];
                    let mut receiver = if we_send { kernel(&program, &rx) } else { ours(&program, &rx) };
                    let receiver = Running::start(receiver.stderr(Stdio::piped()).stdout(Stdio::null()));
                    let tx = [&[family, "-t", "1", "-S", our_addr, "-D", to], lend, &["tcp"]].concat();
                    let out = until_success(|| {
                        finish(&mut if we_send { ours(&program, &tx) } else { kernel(&program, &tx) })
                    });
                    let says = String::from_utf8_lossy(&out.stderr).into_owned();
                    if we_send {
                        let expected = if lend.is_empty() { "txc=0 zc=n" } else { "zc=y" };
                        assert!(says.contains(expected), "{tx:?}: {says}");
                    }
                    wait_for_end(receiver);
                }
            }
        }
    });
}

#[test]
fn changes_of_lent_memory_are_found_and_copies_are_traced() {
    in_private_net(&["python3"], || {
        let files = Files::new("changes");
        let _peer = web_server(&files);
        let program = format!(
            "import select, socket
s = socket.create_connection(('{KERNEL}', 8000))
s.setsockopt(socket.SOL_SOCKET, 60, 1)
lent = bytearray(1 << 20)
s.send(lent, 0x4000000)
lent[70000] = 1
p = select.poll()
p.register(s, 0)
p.poll(5000)
s.recvmsg(0, 64, socket.MSG_ERRQUEUE)"
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_uncopied"));
        command.args(["run", "--tap", "uc0", "--addr", "10.77.0.2/24", "--check-lent", "--stats", "--"]);
        let out = finish(command.args(["python3", "-c", &program]));
        let says = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            says.contains("lent memory was changed before its completion") && says.contains("offset=69952"),
            "{says}"
        );
        assert!(says.contains("changed before its completion: 1 times"), "{says}");
    });
}

#[test]
fn a_program_s_status_and_signals_are_passed_on() {
    in_private_net(&["sh", "sleep"], || {
        assert_eq!(ours("sh", &["-c", "exit 7"]).status().unwrap().code(), Some(7));
        assert_eq!(ours("no-such-program-anywhere", &[""; 0]).status().unwrap().code(), Some(127));
        assert_eq!(ours("/etc/passwd", &[""; 0]).status().unwrap().code(), Some(126));
        let mut sleeper = ours("sleep", &["100"]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(700));
        let pid = rustix::process::Pid::from_child(&sleeper);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(sleeper.wait().unwrap().code(), Some(128 + 15));
    });
}

#[test]
fn a_wrong_configuration_is_named() {
    let run = |arguments: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_uncopied"))
            .arg("run")
            .args(arguments)
            .args(["--", "true"])
            .output();
        let out = out.unwrap();
        assert!(!out.status.success());
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    assert!(run(&["--tap", "uc0"]).contains("--addr"));
    assert!(run(&["--tap", "uc0", "--addr", "10.0.0.1"]).contains("ADDRESS/PREFIX"));
    assert!(run(&["--config", "/no/such/file"]).contains("/no/such/file"));
}
