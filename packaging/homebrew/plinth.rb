# Homebrew's formula: `make packages` fills in version and checksum, and the release has the result beside the sources.
class Plinth < Formula
  desc "Ordered, transactional key-value database with FoundationDB's API"
  homepage "https://github.com/plinth-db/plinth"
  url "https://github.com/plinth-db/plinth/releases/download/v@VERSION@/plinth-@VERSION@-source.tar.gz"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "rust" => :build

  def install
    system "make", "install", "PREFIX=#{prefix}"
  end

  service do
    run [opt_bin/"plinth", "server", "--dir", var/"plinth", "--http", "127.0.0.1:8080"]
    keep_alive successful_exit: false
    log_path var/"log/plinth.log"
    error_log_path var/"log/plinth.log"
  end

  test do
    system bin/"plinth", "shell", "--dir", testpath/"db", "--create", "--exec", "writemode on; set fruit apple"
    assert_match "apple", shell_output("#{bin}/plinth shell --dir #{testpath}/db --exec 'get fruit'")
  end
end
