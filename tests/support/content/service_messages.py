"""Generated notices that must arrive, in nine languages, and adverts that pose as such notices."""

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from tests.support.content.texts import LANGUAGES

FAMILIES: Final = ("passcode", "money", "delivery", "appointment", "outage")
MESSAGES: Final = 20_000
SEED: Final = 20
# Of ten texts, how many have a tail, a misspelt word, and letters of one case.
TAILS_IN_TEN: Final = 6
TYPOS_IN_TEN: Final = 3
ONE_CASE_IN_TEN: Final = 2
TYPO_LETTERS_MIN: Final = 4

# One frame a line.
_FRAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "passcode": """
Your {brand} verification code is {code}. It expires in {n} minutes.
{code} is your {brand} OTP. Never give it to anyone, not even our staff.
Use {code} to sign in to {brand}.
Your one-time PIN is {code}. It was requested at {time} on {date}.
OTP: {code}. Valid for {n} minutes. If you did not request it, call {phone}.
{name}, your {brand} login code is {code}.
Enter code {code} to confirm your new phone number.
Your password reset code is {code}. Ignore this message if you did not ask for it.
Code {code} authorises payment of {amount} to {place} Hardware. Not you? Call {phone}.
{brand}: {code} is your security code. We will never phone you to ask for it.
Hi {name}, use OTP {code} to complete your registration.
Your PIN for collecting parcel {ref} is {code}. Show it to the driver.
Approve the login from a new device with the code {code}.
""",
        "money": """
{amount} was withdrawn from account {acc} at ATM {place} on {date}. Balance {balance}.
You have received {amount} from {name}. Ref {ref}. New balance {balance}.
{amount} paid to {place} Spar with card {acc} on {date} at {time}. Available balance {balance}.
Your account {acc} was credited with {amount} on {date}. Ref: salary.
Debit order of {amount} by {place} Funeral Cover went off account {acc}. Avail bal {balance}.
Payment of {amount} received on {date}. Receipt {ref}. Thank you, {name}.
Your balance on account {acc} is {balance} as at {time} on {date}.
Transfer confirmation: {amount} sent to {name}. Txn ID {ref}. Fee {fee}. Bal {balance}.
Your refund of {amount} for order {ref} was paid into account {acc}.
Debit order of {amount} on account {acc} was returned unpaid on {date}. Please contact your branch.
Your instalment of {amount} on loan {ref} is due on {date}. It will be debited from account {acc}.
School fees of {amount} for {name} were received, receipt {ref}. Outstanding balance {balance}.
You bought electricity for {amount}. Meter {ref}, units {n}.4. Wallet balance {balance}.
Card {acc} was declined for {amount} at {place} because of insufficient funds. Bal {balance}.
""",
        "delivery": """
Your parcel {ref} is out for delivery today. The driver will call you before {time}.
Your order {ref} was dispatched on {date} and arrives {day}.
Parcel {ref} has arrived at our {place} branch. Bring your ID to collect it before {date}.
We tried to deliver order {ref} at {time} but nobody was home. We will try again {day}.
Hi {name}, your package is ready for collection at {place}. Ref {ref}.
Delivery of waybill {ref} is delayed by rain. The new date is {date}.
Your order {ref} was delivered at {time} and signed for by {name}.
Your card is ready at the {place} branch. Collection ref {ref}. Bring your ID.
Shipment {ref} has cleared customs and is in transit to {place}.
The driver {name} is on his way with order {ref} and will arrive at {time}. Phone {phone}.
Your medicine parcel {ref} is ready at counter 3, {place} clinic, until {time}.
Order {ref} will be returned to the sender if it is not collected by {date}.
Your furniture order {ref} will be delivered {day} between {time} and {until}.
Good news, {name}! Your order {ref} is on its way and arrives {day}.
Good news! Your parcel {ref} has arrived at {place}. Collect it from {time}.
""",
        "appointment": """
Reminder: {name} has an appointment at {place} clinic {day} at {time}. Please bring the card.
Your appointment with Dr {name} is confirmed for {date} at {time}.
Hi {name}, your appointment {day} at {time} has been moved to {date}. Reply 1 to confirm.
Your appointment at Home Affairs {place} is on {date} at {time}. Reference {ref}.
You missed your appointment on {date}. Please phone {phone} for a new date.
{name}, please come for your check-up {day} at {time}. Do not eat after midnight.
Dentist: {name}, see you on {date} at {time}. Phone {phone} if you cannot come.
Your vehicle is booked in for its service {day} at {time}. Booking ref {ref}.
Your interview is on {date} at {time} at our {place} office. Bring your ID and certificates.
The consultation with Dr {name} was cancelled because the doctor is ill. New appointment: {date}, {time}.
Baby {name} is due for vaccination on {date} at {place} clinic from {time}.
Visa appointment {ref}: {date}, {time}, {place}. Arrive 15 minutes early.
Parent meeting: your appointment with the teacher of {name} is {day} at {time}.
""",
        "outage": """
Electricity in {place} will be off {day} from {time} to {until} because of repairs to the line.
Planned water interruption in {place} on {date} from {time} to {until}. Please store water.
Load shedding stage 4: {place} is off from {time} to {until} today.
Power was restored in {place} at {time}. Report further faults to {phone}.
Our system will be down for maintenance on {date} between {time} and {until}.
Network maintenance in {place} tonight from {time}. Calls and data may be interrupted.
A water pipe has burst in {place}. Supply is off until {time}. Fault ref {ref}.
USSD and app services are unavailable at the moment. We expect to restore them by {time}.
Fault {ref} logged: no electricity in your area. Technicians are on site, estimated time {time}.
ATMs at {place} are offline {day} from {time} because of a system upgrade.
The fibre line in {place} is down since {time}. Repairs should be complete by {until}.
Notice: water will be shut off in your area {day} at {time} for valve repairs.
The power outage in {place} will last longer than planned. New time {until}.
""",
    },
    "af": {
        "passcode": """
Jou {brand}-verifikasiekode is {code}. Dit verval oor {n} minute.
{code} is jou {brand}-kode. Moenie dit met enigiemand deel nie.
Gebruik {code} om by {brand} aan te meld.
Jou eenmalige PIN is {code}. Dit is om {time} op {date} aangevra.
OTP: {code}. Geldig vir {n} minute. Nie jy nie? Bel {phone}.
{name}, jou {brand}-aanmeldkode is {code}.
Voer kode {code} in om jou nuwe nommer te bevestig.
Jou kode om jou wagwoord te verander is {code}. Ignoreer dit as jy nie daarvoor gevra het nie.
Kode {code} magtig die betaling van {amount} aan {place} Hardeware.
{brand}: {code} is jou sekuriteitskode. Ons sal jou nooit daarvoor bel nie.
Hallo {name}, gebruik OTP {code} om jou registrasie te voltooi.
Jou PIN om pakkie {ref} af te haal is {code}. Wys dit vir die bestuurder.
Jou login code is {code}, moet dit asb vir niemand gee nie.
""",
        "money": """
{amount} is op {date} by OTM {place} van rekening {acc} onttrek. Saldo {balance}.
Jy het {amount} van {name} ontvang. Verw {ref}. Nuwe saldo {balance}.
{amount} betaal by {place} Spar met kaart {acc} op {date} om {time}. Beskikbare saldo {balance}.
Rekening {acc} is op {date} met {amount} gekrediteer. Verw: salaris.
Debietorder van {amount} vir begrafnisdekking van rekening {acc} afgetrek. Saldo {balance}.
Betaling van {amount} op {date} ontvang. Kwitansie {ref}. Dankie, {name}.
Die saldo van rekening {acc} is {balance} om {time} op {date}.
{amount} is aan {name} oorgeplaas. Verwysing {ref}. Fooi {fee}. Saldo {balance}.
Jou terugbetaling van {amount} vir bestelling {ref} is in rekening {acc} inbetaal.
Debietorder van {amount} op rekening {acc} is op {date} onbetaald teruggestuur.
Jou paaiement van {amount} op lening {ref} is op {date} betaalbaar en gaan van rekening {acc} af.
Skoolgeld van {amount} vir {name} ontvang, kwitansie {ref}. Uitstaande saldo {balance}.
Jou card {acc} is vir {amount} by {place} geswipe. Avail bal {balance}.
""",
        "delivery": """
Jou pakkie {ref} is vandag op pad na jou. Die bestuurder bel jou voor {time}.
Jou bestelling {ref} is op {date} gestuur en kom {day} aan.
Pakkie {ref} het by ons tak in {place} aangekom. Bring jou ID en haal dit voor {date} af.
Ons wou bestelling {ref} om {time} aflewer, maar niemand was tuis nie. Ons probeer weer {day}.
Hallo {name}, jou pakkie is gereed vir afhaal by {place}. Verw {ref}.
Die aflewering van vragbrief {ref} is weens reën vertraag. Die nuwe datum is {date}.
Jou bestelling {ref} is om {time} afgelewer en deur {name} geteken.
Jou bankkaart is gereed by die tak in {place}. Verw {ref}. Bring jou ID.
Besending {ref} is deur doeane en onderweg na {place}.
Die bestuurder {name} is oppad met bestelling {ref} en kom om {time} daar aan. Bel {phone}.
Jou medisynepakkie {ref} wag by toonbank 3, {place}-kliniek, tot {time}.
Bestelling {ref} gaan terug na die sender as dit nie voor {date} afgehaal word nie.
Jou parcel {ref} is by die depot in {place}, jy kan dit {day} kom haal.
Goeie nuus, {name}! Jou bestelling {ref} is op pad en kom {day} aan.
Goeie nuus! Jou pakkie {ref} het in {place} aangekom. Haal dit vanaf {time} af.
""",
        "appointment": """
Onthou: {name} se afspraak by die kliniek in {place} is {day} om {time}. Bring asb die kaart saam.
Jou afspraak met dr. {name} is bevestig vir {date} om {time}.
Hallo {name}, jou afspraak van {day} om {time} is na {date} geskuif. Antwoord 1 om te bevestig.
Jou afspraak by Binnelandse Sake {place} is op {date} om {time}. Verwysing {ref}.
Jy het jou afspraak op {date} misgeloop. Bel asb {phone} vir 'n nuwe datum.
{name}, kom asb {day} om {time} vir jou ondersoek. Moenie na middernag eet nie.
Tandarts: {name}, ons sien jou op {date} om {time}. Bel {phone} as jy nie kan kom nie.
Jou motor is {day} om {time} vir 'n diens bespreek. Verw {ref}.
Jou onderhoud is op {date} om {time} by ons kantoor in {place}. Bring jou ID en sertifikate.
Die konsultasie met dr. {name} is gekanselleer, die dokter is siek. Nuwe afspraak: {date}, {time}.
Baba {name} se inenting is op {date} by die kliniek in {place} vanaf {time}.
Jou appointment by die kliniek is {day} om {time}, moenie laat wees nie.
Oueraand: jou afspraak met {name} se juffrou is {day} om {time}.
""",
        "outage": """
Die krag in {place} is {day} van {time} tot {until} af weens herstelwerk aan die lyn.
Beplande wateronderbreking in {place} op {date} van {time} tot {until}. Hou asb water aan.
Beurtkrag fase 4: {place} se krag is vandag van {time} tot {until} af.
Die krag in {place} is om {time} herstel. Rapporteer verdere foute by {phone}.
Ons stelsel is op {date} tussen {time} en {until} af vir instandhouding.
Netwerkonderhoud in {place} vanaand vanaf {time}. Oproepe en data kan onderbreek word.
'n Waterpyp het in {place} gebars. Die water is af tot {time}. Verw {ref}.
Die toep en USSD-dienste is tans onbeskikbaar. Ons verwag dat dit om {time} herstel sal wees.
Fout {ref} aangemeld: geen elektrisiteit in jou gebied nie. Tegnici is op die toneel, verwag om {time}.
OTM'e by {place} is {day} vanaf {time} van lyn af weens 'n stelselopgradering.
Die vesellyn in {place} is sedert {time} af. Die herstelwerk behoort teen {until} klaar te wees.
Kennisgewing: die water in jou area word {day} om {time} afgesluit om kleppe te herstel.
Load shedding in {place} vandag, power is af van {time} tot {until}.
""",
    },
    "sn": {
        "passcode": """
Kodhi yenyu ye{brand} ndeye {code}. Inoshanda kwemaminitsi {n}.
{code} ndiyo kodhi yenyu ye{brand}. Musaudze munhu.
Shandisai {code} kupinda mu{brand}.
PIN yenyu yekushandisa kamwe chete ndeye {code}. Yakumbirwa na{time} musi wa{date}.
OTP: {code}. Inoshanda kwemaminitsi {n}. Kana musiri imi, fonai {phone}.
{name}, kodhi yenyu yekupinda mu{brand} ndi {code}.
Isai kodhi {code} kuti musimbise nhamba yenyu itsva.
Kodhi yekuchinja pasiwedhi yenyu ndeye {code}. Kana musina kuikumbira, siyai meseji iyi.
Kodhi {code} inobvumidza kubhadharwa kwe{amount} kuna {name}.
{brand}: {code} ndiyo kodhi yenyu yekuchengetedza. Hatimbofoni tichiibvunza.
Makadii {name}, shandisai OTP {code} kuti mupedze kunyoresa.
PIN yekutora pasuru {ref} ndeye {code}. Ratidzai mutyairi.
OTP yenyu ndi {code}, please musaipa munhu.
""",
        "money": """
{amount} yabviswa muaccount yenyu inoperera na{acc} paATM ye{place} musi wa{date}. Kwasara {balance}.
Matambira {amount} kubva kuna {name}. Ref {ref}. Mari yasara {balance}.
Mabhadhara {amount} ku{place} Spar nekadhi {acc} musi wa{date} na{time}. Bharanzi {balance}.
Account {acc} yaiswa {amount} musi wa{date}. Ref: mubhadharo webasa.
{amount} yabviswa paaccount {acc} yeinishuwarenzi yerufu. Kwasara {balance}.
Mubhadharo we{amount} watambirwa musi wa{date}. Risiti {ref}. Tatenda, {name}.
Mari iri muaccount {acc} i{balance} na{time} musi wa{date}.
Matumira {amount} kuna {name}. Txn ID {ref}. Muripo {fee}. Bharanzi {balance}.
Mari yenyu {amount} yeodha {ref} yadzoserwa muaccount {acc}.
Muripo we{amount} paaccount {acc} wakundikana musi wa{date}. Taurai nebazi renyu.
Chikamu che{amount} pachikwereti {ref} chinofanira kubhadharwa musi wa{date}.
Fizi ya{name} {amount} yatambirwa, risiti {ref}. Kwasara {balance} isati yabhadharwa.
Matenga magetsi e{amount}. Mita {ref}. Kwasara {balance} muwallet.
You have received {amount} kubva kuna {name}, balance yenyu yava {balance}.
""",
        "delivery": """
Pasuru yenyu {ref} iri munzira nhasi. Mutyairi achakufonerai nguva ya{time} isati yakwana.
Odha yenyu {ref} yatumirwa musi wa{date}, ichasvika {day}.
Pasuru {ref} yasvika pabazi redu re{place}. Uyai neID kuzoitora musi wa{date} usati wapfuura.
Tauya kuzosiya odha {ref} na{time} asi pamba pakanga pasina munhu. Tichadzoka {day}.
Makadii {name}, pasuru yenyu yagadzirira kutorwa ku{place}. Ref {ref}.
Pasuru {ref} yanonoka nekuda kwemvura. Zuva idzva ndi{date}.
Odha yenyu {ref} yasvitswa na{time}, yasainwa na{name}.
Kadhi renyu rekubhanga ragadzirira kubazi re{place}. Ref {ref}. Uyai neID.
Pasuru {ref} yapfuura pakasitomu, iri munzira kuenda ku{place}.
Mutyairi {name} ari munzira neodha {ref}, anosvika na{time}. Fonai {phone}.
Pasuru yemishonga {ref} yakamirira kukiriniki ye{place} kusvika na{time}.
Odha {ref} ichadzoserwa kune akaitumira kana isina kutorwa musi wa{date} usati wasvika.
Parcel yenyu {ref} yasvika pashop ye{place}, huyai muitore {day}.
Nhau dzakanaka, {name}! Odha yenyu {ref} iri munzira, ichasvika {day}.
Nhau dzakanaka! Pasuru yenyu {ref} yasvika ku{place}. Itorei kubva na{time}.
""",
        "appointment": """
Tinokuyeuchidzai kuti {name} anoona chiremba {day} na{time} kukiriniki ye{place}. Uyai nekadhi.
Appointment yenyu naDr {name} yasimbiswa musi wa{date} na{time}.
Makadii {name}, appointment yenyu ye{time} yachinjirwa musi wa{date}. Pindurai 1 kusimbisa.
Appointment yenyu kuhofisi yemapasipoti ku{place} iri musi wa{date} na{time}. Ref {ref}.
Hamuna kuuya kuappointment yenyu musi wa{date}. Fonai {phone} mupiwe rimwe zuva.
{name}, uyai kuzoongororwa nachiremba {day} na{time}. Musadya pakati peusiku papfuura.
Chiremba wemazino: {name}, tichaonana musi wa{date} na{time}. Fonai {phone} kana musingakwanisi.
Motokari yenyu yakanyorerwa service {day} na{time}. Booking ref {ref}.
Interview yenyu iri musi wa{date} na{time} kuhofisi dzedu ku{place}. Uyai neID nezvitupa.
Dr {name} vari kurwara. Appointment yenyu itsva iri musi wa{date} na{time}.
Mwana {name} anofanira kubaiwa nhomba musi wa{date} kukiriniki ye{place} kubva na{time}.
Reminder: appointment yenyu kuclinic iri {day} na{time}, musanonoka.
Musangano wevabereki: nguva yenyu yekuona mudzidzisi wa{name} iri {day} na{time}.
""",
        "outage": """
Magetsi achadzimwa ku{place} {day} kubva na{time} kusvika {until} nekuda kwekugadziriswa kwetambo.
Hakuna mvura ku{place} musi wa{date} kubva na{time} kusvika {until}. Chengetai mvura.
Magetsi haapo ku{place} nhasi kubva na{time} kusvika {until}. Loadshedding stage 4.
Magetsi adzoka ku{place} na{time}. Kana paine dambudziko fonai {phone}.
Sisitimu yedu ichavharwa kuti igadziriswe musi wa{date} pakati pa{time} na{until}.
Network iri kugadziriswa ku{place} manheru ano kubva na{time}. Mafoni nedata zvinogona kudimurwa.
Pombi yemvura yaputika ku{place}. Mvura yavharwa kusvika na{time}. Ref {ref}.
USSD neapp hazvisi kushanda parizvino. Tinotarisira kuti zvidzoke na{time}.
Tagamuchira mhosho {ref}: hapana magetsi munharaunda yenyu. Vashandi vasvika, nguva {time}.
MaATM eku{place} haashandi {day} kubva na{time} nekuda kwekugadziriswa kwesisitimu.
Internet yeku{place} yadimuka kubva na{time}. Ichagadziriswa na{until}.
Chiziviso: mvura ichavharwa munharaunda yenyu {day} na{time} kuti mapombi agadziriswe.
ZESA notice: magetsi achaenda ku{place} {day} from {time} to {until}, maintenance.
""",
    },
    "nd": {
        "passcode": """
Ikhodi yakho ye-{brand} ngu-{code}. Isebenza okwemizuzu engu-{n}.
{code} yikhodi yakho ye-{brand}. Ungatsheli muntu.
Sebenzisa u-{code} ukuze ungene ku-{brand}.
I-PIN yakho esetshenziswa kanye ngu-{code}. Icelwe ngo-{time} mhla ka-{date}.
OTP: {code}. Isebenza okwemizuzu engu-{n}. Nxa kungasuwe, tshaya ucingo ku-{phone}.
{name}, ikhodi yakho yokungena ku-{brand} ngu-{code}.
Faka ikhodi {code} ukuqinisekisa inombolo yakho entsha.
Ikhodi yokutshintsha iphasiwedi yakho ngu-{code}. Nxa ungayicelanga, yekela umlayezo lo.
Ikhodi {code} ivumela ukubhadalwa kuka-{amount} ku-{name}.
{brand}: {code} yikhodi yakho yokuvikela. Asisoze sikufonele siyibuza.
Sawubona {name}, sebenzisa i-OTP {code} ukuqeda ukubhalisa.
I-PIN yokuthatha iphasela {ref} ngu-{code}. Tshengisa umtshayeli.
I-OTP yakho ngu-{code}, please ungaphi muntu.
""",
        "money": """
I-{amount} ikhutshiwe ku-akhawunti yakho ephela ngo-{acc} e-ATM e{place} mhla ka-{date}. Kusele {balance}.
Wemukele i-{amount} ivela ku-{name}. Ref {ref}. Imali esele yi-{balance}.
Ubhadele i-{amount} e{place} Spar ngekhadi {acc} mhla ka-{date} ngo-{time}. Osekusele yi-{balance}.
I-akhawunti {acc} ifakwe i-{amount} mhla ka-{date}. Ref: iholo.
I-{amount} isuswe ku-akhawunti {acc} eyomngcwabo. Kusele {balance}.
Imbadalo ye-{amount} yemukelwe mhla ka-{date}. Irisithi {ref}. Siyabonga, {name}.
Imali eku-akhawunti {acc} yi-{balance} ngo-{time} mhla ka-{date}.
Uthumele i-{amount} ku-{name}. Txn ID {ref}. Imali yokuthumela {fee}. Ibhalansi {balance}.
Imali yakho engu-{amount} ye-oda {ref} ibuyiselwe ku-akhawunti {acc}.
Imbadalo ye-{amount} ku-akhawunti {acc} yehlulekile mhla ka-{date}. Khuluma legatsha lakho.
Isitolimende sakho esingu-{amount} semalimboleko {ref} kumele sibhadalwe mhla ka-{date}.
Imali yesikolo ka-{name} engu-{amount} yemukelwe, irisithi {ref}. Esasalayo yi-{balance}.
Uthenge amagetsi e-{amount}. Imitha {ref}. Kusele {balance} ku-wallet.
You have received {amount} ivela ku-{name}, ibhalansi yakho isiyi-{balance}.
""",
        "delivery": """
Iphasela lakho {ref} lisendleleni lamuhla. Umtshayeli uzakufonela ngaphambi kuka-{time}.
I-oda yakho {ref} ithunyelwe mhla ka-{date}, izafika {day}.
Iphasela {ref} selifikile egatsheni lethu e{place}. Woza le-ID uzolithatha ngaphambi kuka-{date}.
Size le-oda {ref} ngo-{time} kodwa kungekho muntu ekhaya. Sizabuya {day}.
Sawubona {name}, iphasela lakho selilungele ukuthathwa e{place}. Ref {ref}.
Iphasela {ref} liphuzile ngenxa yezulu. Ilanga elitsha ngu-{date}.
I-oda yakho {ref} ifikiswe ngo-{time}, isayinwe ngu-{name}.
Ikhadi lakho lebhanga selilungile egatsheni le-{place}. Ref {ref}. Woza le-ID.
Iphasela {ref} seledlule ekhastamu, lisendleleni eya e{place}.
Umtshayeli u-{name} usendleleni le-oda {ref}, uzafika ngo-{time}. Inombolo {phone}.
Iphasela lemithi yakho {ref} lilindile ekliniki e{place} kuze kube ngu-{time}.
I-oda {ref} izabuyiselwa kothumeleyo nxa ingathathwanga ngaphambi kuka-{date}.
I-parcel yakho {ref} isifikile e-shop e{place}, woza uzoyithatha {day}.
Izindaba ezinhle, {name}! I-oda yakho {ref} isendleleni, izafika {day}.
Izindaba ezinhle! Iphasela lakho {ref} selifikile e{place}. Lithathe kusukela ngo-{time}.
""",
        "appointment": """
Sikukhumbuza ukuthi u-{name} uzabona udokotela {day} ngo-{time} ekliniki e{place}. Woza lekhadi.
I-appointment yakho loDokotela {name} iqinisekisiwe mhla ka-{date} ngo-{time}.
Sawubona {name}, i-appointment yakho ya-{time} itshintshelwe ku-{date}. Phendula 1 ukuvuma.
I-appointment yakho ehofisini yamaphasipoti e{place} imhla ka-{date} ngo-{time}. Ref {ref}.
Kawufikanga ku-appointment yakho mhla ka-{date}. Fona ku-{phone} uphiwe elinye ilanga.
{name}, woza uzohlolwa ngudokotela {day} ngo-{time}. Ungadli ngemva kwaphakathi kobusuku.
Udokotela wamazinyo: {name}, sizabonana mhla ka-{date} ngo-{time}. Fona ku-{phone} nxa usehluleka.
Imota yakho ibhukhelwe i-service {day} ngo-{time}. Ref {ref}.
I-interview yakho imhla ka-{date} ngo-{time} emahofisini ethu e{place}. Woza le-ID lezitifiketi.
Udokotela {name} uyagula. I-appointment yakho entsha imhla ka-{date} ngo-{time}.
Umntwana u-{name} kumele agonywe mhla ka-{date} ekliniki e{place} kusukela ngo-{time}.
Reminder: i-appointment yakho e-clinic {day} ngo-{time}, ungaphuzi.
Umhlangano wabazali: isikhathi sakho sokubona umbalisi ka-{name} {day} ngo-{time}, i-appointment {ref}.
""",
        "outage": """
Amagetsi azacitshwa e{place} {day} kusukela ngo-{time} kuze kube ngu-{until} kulungiswa intambo.
Amanzi azavalwa e{place} mhla ka-{date} kusukela ngo-{time} kusiya ku-{until}. Gcinani amanzi.
Kawekho amagetsi e{place} lamuhla kusukela ngo-{time} kuze kube ngu-{until}. Loadshedding stage 4.
Amagetsi asebuyile e{place} ngo-{time}. Nxa kulohlupho fonani ku-{phone}.
Isistimu yethu izavalwa ukuze ilungiswe mhla ka-{date} phakathi kuka-{time} lo-{until}.
I-network iyalungiswa e{place} kusihlwa kusukela ngo-{time}. Izingcingo le-data kungaphazamiseka.
Ipayipi lamanzi liqhekekile e{place}. Amanzi avaliwe kuze kube ngu-{time}. Ref {ref}.
I-USSD le-app akusebenzi khathesi. Silindele ukuthi kubuye ngo-{time}.
Sitholile umbiko {ref}: kawekho amagetsi endaweni yenu. Izisebenzi sezifikile, azabuya ngo-{time}.
Ama-ATM e{place} kawasebenzi {day} kusukela ngo-{time} ngoba kulungiswa isistimu.
I-internet ye{place} inqamukile kusukela ngo-{time}. Izalungiswa ngo-{until}.
Isaziso: amanzi azavalwa endaweni yenu {day} ngo-{time} ukuze kulungiswe amapayipi.
ZESA notice: amagetsi azahamba e{place} {day} from {time} to {until}, maintenance.
""",
    },
    "zu": {
        "passcode": """
Ikhodi yakho yokuqinisekisa ye-{brand} ithi {code}. Isebenza imizuzu engu-{n}.
U-{code} uyikhodi yakho ye-{brand}. Ungayitsheli noma ubani.
Sebenzisa u-{code} ukungena ku-{brand}.
I-PIN yakho yesikhathi esisodwa ngu-{code}. Icelwe ngo-{time} mhla ka-{date}.
OTP: {code}. Isebenza imizuzu engu-{n}. Uma kungewena, shayela u-{phone}.
{name}, ikhodi yakho yokungena ku-{brand} ngu-{code}.
Faka ikhodi {code} ukuze uqinisekise inombolo yakho entsha.
Ikhodi yokushintsha iphasiwedi yakho ngu-{code}. Uma ungayicelanga, ungawunaki lo myalezo.
Ikhodi {code} igunyaza inkokhelo ka-{amount} eya ku-{name}.
{brand}: u-{code} uyikhodi yakho yokuphepha. Asisoze sakushayela ucingo siyicela.
Sawubona {name}, sebenzisa i-OTP {code} ukuqedela ukubhalisa.
I-PIN yokulanda iphasela {ref} ngu-{code}. Yikhombise umshayeli.
I-OTP yakho ithi {code}, please ungayitsheli muntu.
""",
        "money": """
U-{amount} ukhishwe ku-akhawunti yakho ephela ngo-{acc} e-ATM yase{place} ngo-{date}. Osele ngu-{balance}.
Uthole u-{amount} ovela ku-{name}. Ref {ref}. Ibhalansi entsha ngu-{balance}.
Ukhokhe u-{amount} e{place} Spar ngekhadi {acc} ngo-{date} ngo-{time}. Imali esele ngu-{balance}.
I-akhawunti {acc} ifakwe u-{amount} ngo-{date}. Ref: iholo.
I-debit order ka-{amount} yomngcwabo iphumile ku-akhawunti {acc}. Imali esele ngu-{balance}.
Inkokhelo ka-{amount} yamukelwe ngo-{date}. Irisidi {ref}. Siyabonga, {name}.
Imali eku-akhawunti {acc} ngu-{balance} ngo-{time} mhla ka-{date}.
Uthumele u-{amount} ku-{name}. Inkomba {ref}. Imali yokuthumela {fee}. Ibhalansi {balance}.
Imali yakho engu-{amount} ye-oda {ref} ibuyiselwe ku-akhawunti {acc}.
I-debit order ka-{amount} ku-akhawunti {acc} ibuye ingakhokhiwe ngo-{date}. Thinta igatsha lakho.
Isitolimende sakho sika-{amount} semalimboleko {ref} kumele sikhokhwe ngo-{date}.
Imali yesikole ka-{name} engu-{amount} yamukelwe, irisidi {ref}. Osekusele ngu-{balance}.
Uthenge ugesi ka-{amount}. Imitha {ref}. Ibhalansi yakho ngu-{balance}.
Card {acc} iswayiphiwe ngo-{amount} e{place}. Avail bal {balance}.
""",
        "delivery": """
Iphasela lakho {ref} lisendleleni namuhla. Umshayeli uzokushayela ucingo ngaphambi kuka-{time}.
I-oda yakho {ref} ithunyelwe ngo-{date}, izofika {day}.
Iphasela {ref} lifikile egatsheni lethu lase{place}. Woza nomazisi uzolilanda ngaphambi kuka-{date}.
Sizamile ukuletha i-oda {ref} ngo-{time} kodwa bekungekho muntu ekhaya. Sizobuya {day}.
Sawubona {name}, iphasela lakho selilungele ukulandwa e{place}. Ref {ref}.
Ukulethwa kwephasela {ref} kubambezeleke ngenxa yemvula. Usuku olusha ngu-{date}.
I-oda yakho {ref} ilethwe ngo-{time}, yasayinwa ngu-{name}.
Ikhadi lakho lasebhange selilungile egatsheni lase{place}. Ref {ref}. Woza nomazisi.
Iphasela {ref} selidlulile kwezentela, lisendleleni eya e{place}.
Umshayeli u-{name} usendleleni ne-oda {ref}, uzofika ngo-{time}. Inombolo yakhe {phone}.
Iphasela lemithi yakho {ref} lilindile emtholampilo wase{place} kuze kube ngu-{time}.
I-oda {ref} izobuyiselwa kumthumeli uma ingalandwanga ngaphambi kuka-{date}.
I-parcel yakho {ref} isifikile e-PEP e{place}, woza uzoyilanda {day}.
Izindaba ezinhle, {name}! I-oda yakho {ref} isendleleni, izofika {day}.
Izindaba ezinhle! Iphasela lakho {ref} selifikile e{place}. Lilande kusukela ngo-{time}.
""",
        "appointment": """
Sikukhumbuza ukuthi u-{name} uzobona udokotela {day} ngo-{time} emtholampilo wase{place}. Woza nekhadi.
I-aphoyintimenti yakho noDkt {name} iqinisekisiwe mhla ka-{date} ngo-{time}.
Sawubona {name}, i-aphoyintimenti yakho yango-{time} ishintshelwe ku-{date}. Phendula ngo-1 ukuvuma.
I-aphoyintimenti yakho kwaHome Affairs e{place} ingo-{date} ngo-{time}. Inkomba {ref}.
Awufikanga ku-aphoyintimenti yakho ngo-{date}. Shayela u-{phone} uthole olunye usuku.
{name}, woza uzohlolwa udokotela {day} ngo-{time}. Ungadli emva kwamabili ebusuku.
Udokotela wamazinyo: {name}, sizokubona ngo-{date} ngo-{time}. Shayela u-{phone} uma ungeke ukwazi.
Imoto yakho ibhukhelwe i-service {day} ngo-{time}. Ref {ref}.
Inhlolokhono yakho ingo-{date} ngo-{time} ehhovisi lethu e{place}, i-aphoyintimenti {ref}.
UDkt {name} uyagula. I-aphoyintimenti yakho entsha ingo-{date} ngo-{time}.
Ingane u-{name} kumele igonywe mhla ka-{date} emtholampilo wase{place} kusukela ngo-{time}.
Reminder: i-appointment yakho e-clinic {day} ngo-{time}, ungafiki late.
Umhlangano wabazali: i-aphoyintimenti yakho nothisha ka-{name} {day} ngo-{time}.
""",
        "outage": """
Ugesi uzocishwa e{place} {day} kusukela ngo-{time} kuya ku-{until} ngenxa yokulungiswa kwezintambo.
Amanzi azovalwa e{place} ngo-{date} kusukela ngo-{time} kuya ku-{until}. Sicela nigcine amanzi.
I-load shedding stage 4: ugesi awukho e{place} namuhla kusukela ngo-{time} kuya ku-{until}.
Ugesi usubuyile e{place} ngo-{time}. Bika amanye amaphutha ku-{phone}.
Isistimu yethu izovalwa ukuze ilungiswe ngo-{date} phakathi kuka-{time} no-{until}.
Inethiwekhi iyalungiswa e{place} kusihlwa kusukela ngo-{time}. Izingcingo ne-data kungaphazamiseka.
Kuqhume ipayipi lamanzi e{place}. Amanzi avaliwe kuze kube ngu-{time}. Ref {ref}.
I-USSD ne-app akusebenzi okwamanje. Silindele ukuthi kubuye ngo-{time}.
Siwutholile umbiko {ref}: awukho ugesi endaweni yakho. Ochwepheshe bafikile, uzobuya ngo-{time}.
Ama-ATM ase{place} awasebenzi {day} kusukela ngo-{time} ngoba kulungiswa isistimu.
I-fibre yase{place} inqamukile kusukela ngo-{time}. Izolungiswa ngo-{until}.
Isaziso: amanzi azovalwa endaweni yakho {day} ngo-{time} ukuze kulungiswe amapayipi.
Eskom: power off e{place} {day} from {time} kuya ku-{until}, kuyalungiswa.
""",
    },
    "xh": {
        "passcode": """
Ikhowudi yakho yokuqinisekisa ye-{brand} ngu-{code}. Isebenza imizuzu eli-{n}.
U-{code} yikhowudi yakho ye-{brand}. Musa ukuyixelela nabani na.
Sebenzisa u-{code} ukungena kwi-{brand}.
I-PIN yakho yexesha elinye ngu-{code}. Icelwe ngo-{time} ngomhla we-{date}.
OTP: {code}. Isebenza imizuzu eli-{n}. Ukuba asinguwe, tsalela u-{phone}.
{name}, ikhowudi yakho yokungena kwi-{brand} ngu-{code}.
Faka ikhowudi {code} ukuqinisekisa inombolo yakho entsha.
Ikhowudi yokutshintsha iphasiwedi yakho ngu-{code}. Ukuba awuyicelanga, sukuwuhoya lo myalezo.
Ikhowudi {code} igunyazisa intlawulo ye-{amount} eya ku-{name}.
{brand}: u-{code} yikhowudi yakho yokhuseleko. Asisoze sikutsalele umnxeba siyicela.
Molo {name}, sebenzisa i-OTP {code} ukugqiba ukubhalisa.
I-PIN yokuthatha ipasile {ref} ngu-{code}. Yibonise umqhubi.
I-OTP yakho ngu-{code}, please ungayiniki mntu.
""",
        "money": """
I-{amount} ikhutshiwe kwi-akhawunti yakho ephela ngo-{acc} e-ATM yase{place} nge-{date}. Eseleyo yi-{balance}.
Ufumene i-{amount} evela ku-{name}. Ref {ref}. Ibhalansi entsha yi-{balance}.
Uhlawule i-{amount} e{place} Spar ngekhadi {acc} nge-{date} ngo-{time}. Imali eseleyo yi-{balance}.
I-akhawunti {acc} ifakwe i-{amount} nge-{date}. Ref: umvuzo.
I-debit order ye-{amount} yomngcwabo iphumile kwi-akhawunti {acc}. Imali eseleyo yi-{balance}.
Intlawulo ye-{amount} yamkelwe nge-{date}. Irisithi {ref}. Enkosi, {name}.
Imali ekwi-akhawunti {acc} yi-{balance} ngo-{time} nge-{date}.
Uthumele i-{amount} ku-{name}. Ireferensi {ref}. Intlawulo yokuthumela {fee}. Ibhalansi {balance}.
Imali yakho eyi-{amount} ye-odolo {ref} ibuyiselwe kwi-akhawunti {acc}.
I-debit order ye-{amount} kwi-akhawunti {acc} ibuye ingahlawulwanga nge-{date}. Qhagamshelana nesebe.
Isavenge sakho se-{amount} semali-mboleko {ref} kufuneka sihlawulwe nge-{date}.
Imali yesikolo ka-{name} eyi-{amount} yamkelwe, irisithi {ref}. Eseleyo yi-{balance}.
Uthenge umbane we-{amount}. Imitha {ref}. Ibhalansi yakho yi-{balance}.
Card {acc} iswayiphiwe nge-{amount} e{place}. Avail bal {balance}.
""",
        "delivery": """
Ipasile yakho {ref} isendleleni namhlanje. Umqhubi uza kukutsalela umnxeba phambi kwe-{time}.
I-odolo yakho {ref} ithunyelwe nge-{date}, iza kufika {day}.
Ipasile {ref} ifikile kwisebe lethu lase{place}. Yiza nesazisi uze kuyithatha phambi kwe-{date}.
Sizamile ukuzisa i-odolo {ref} ngo-{time} kodwa bekungekho mntu ekhaya. Siza kubuya {day}.
Molo {name}, ipasile yakho ilungele ukuthathwa e{place}. Ref {ref}.
Ukuziswa kwepasile {ref} kulibazisekile ngenxa yemvula. Umhla omtsha ngu-{date}.
I-odolo yakho {ref} izisiwe ngo-{time}, yatyikitywa ngu-{name}.
Ikhadi lakho lebhanki lilungile kwisebe lase{place}. Ref {ref}. Yiza nesazisi.
Ipasile {ref} idlulile kwezerhafu, isendleleni eya e{place}.
Umqhubi u-{name} usendleleni ne-odolo {ref}, uza kufika ngo-{time}. Inombolo yakhe {phone}.
Ipasile yamayeza akho {ref} ilindile ekliniki yase{place} de kube ngu-{time}.
I-odolo {ref} iza kubuyiselwa kumthumeli ukuba ayithathwanga phambi kwe-{date}.
I-parcel yakho {ref} ifikile e-PEP e{place}, yiza uzoyithatha {day}.
Iindaba ezimnandi, {name}! I-odolo yakho {ref} isendleleni, iza kufika {day}.
Iindaba ezimnandi! Ipasile yakho {ref} ifikile e{place}. Yithathe ukusuka ngo-{time}.
""",
        "appointment": """
Sikukhumbuza ukuba u-{name} uza kubona ugqirha {day} ngo-{time} ekliniki yase{place}. Yiza nekhadi.
Idinga lakho noGqr {name} liqinisekisiwe nge-{date} ngo-{time}.
Molo {name}, idinga lakho lango-{time} litshintshelwe kwi-{date}. Phendula ngo-1 ukuvuma.
Idinga lakho kwaHome Affairs e{place} linge-{date} ngo-{time}. Ireferensi {ref}.
Awufikanga kwidinga lakho nge-{date}. Tsalela u-{phone} ufumane omnye umhla.
{name}, yiza uzokuxilongwa ngugqirha {day} ngo-{time}. Musa ukutya emva kwezinzulu zobusuku.
Ugqirha wamazinyo: {name}, siza kukubona nge-{date} ngo-{time}. Tsalela u-{phone} ukuba awunakuza.
Imoto yakho ibhukishelwe i-service {day} ngo-{time}. Booking ref {ref}.
Udliwano-ndlebe lwakho lunge-{date} ngo-{time} kwiofisi yethu e{place}, idinga {ref}.
UGqr {name} uyagula. Idinga lakho elitsha linge-{date} ngo-{time}.
Usana u-{name} kufuneka lugonywe nge-{date} ekliniki yase{place} ukusuka ngo-{time}.
Reminder: i-appointment yakho e-clinic {day} ngo-{time}, ungafiki late.
Intlanganiso yabazali: idinga lakho notitshala ka-{name} {day} ngo-{time}.
""",
        "outage": """
Umbane uza kucinywa e{place} {day} ukusuka ngo-{time} ukuya ku-{until} ngenxa yokulungiswa kweentambo.
Amanzi aza kuvalwa e{place} nge-{date} ukusuka ngo-{time} ukuya ku-{until}. Nceda ugcine amanzi.
I-load shedding stage 4: akukho mbane e{place} namhlanje ukusuka ngo-{time} ukuya ku-{until}.
Umbane ubuyile e{place} ngo-{time}. Xela ezinye iimpazamo ku-{phone}.
Isistimu yethu iza kuvalwa ukuze ilungiswe nge-{date} phakathi ko-{time} no-{until}.
Inethiwekhi iyalungiswa e{place} ngokuhlwa ukusuka ngo-{time}. Iifowuni nedatha zingaphazamiseka.
Kugqabhuke umbhobho wamanzi e{place}. Amanzi avaliwe de kube ngu-{time}. Ref {ref}.
I-USSD ne-app azisebenzi okwangoku. Silindele ukuba zibuye ngo-{time}.
Siyifumene ingxelo {ref}: akukho mbane kwindawo yakho. Iingcali zifikile, uza kubuya ngo-{time}.
Ii-ATM zase{place} azisebenzi {day} ukusuka ngo-{time} kuba kulungiswa isistimu.
I-fibre yase{place} inqamkile ukusuka ngo-{time}. Iza kulungiswa ngo-{until}.
Isaziso: amanzi aza kuvalwa kwindawo yakho {day} ngo-{time} ukuze kulungiswe imibhobho.
Eskom: power off e{place} {day} from {time} ukuya ku-{until}, kuyalungiswa.
""",
    },
    "st": {
        "passcode": """
Khoutu ya hao ya netefatso ya {brand} ke {code}. E sebetsa metsotso e {n}.
{code} ke khoutu ya hao ya {brand}. O se ke wa e bolella motho.
Sebedisa {code} ho kena ho {brand}.
PIN ya hao ya hang feela ke {code}. E kopilwe ka {time} ka la {date}.
OTP: {code}. E sebetsa metsotso e {n}. Haeba e se wena, letsetsa {phone}.
{name}, khoutu ya hao ya ho kena ho {brand} ke {code}.
Kenya khoutu {code} ho netefatsa nomoro ya hao e ntjha.
Khoutu ya ho fetola phasewete ya hao ke {code}. Haeba o sa e kopa, hlokomoloha molaetsa ona.
Khoutu {code} e dumella tefo ya {amount} ho {name}.
{brand}: {code} ke khoutu ya hao ya tshireletso. Re ke ke ra o letsetsa ho e kopa.
Dumela {name}, sebedisa OTP {code} ho qeta ngodiso ya hao.
PIN ya ho lata phasela {ref} ke {code}. E bontshe mokganni.
OTP ya hao ke {code}, please o se ke wa e fa motho.
""",
        "money": """
{amount} e ntshitswe akhaonteng ya hao e fellang ka {acc} ATM ya {place} ka la {date}. Ho setse {balance}.
O amohetse {amount} ho tswa ho {name}. Ref {ref}. Balanse e ntjha ke {balance}.
O lefile {amount} {place} Spar ka karete {acc} ka la {date} ka {time}. Ho setse {balance}.
Akhaonto {acc} e kentswe {amount} ka la {date}. Ref: moputso.
Debit order ya {amount} ya lepato e tswile akhaonteng {acc}. Ho setse {balance}.
Tefo ya {amount} e amohetswe ka la {date}. Rasiti {ref}. Re a leboha, {name}.
Tjhelete e akhaonteng {acc} ke {balance} ka {time} ka la {date}, balanse e nepahetse.
O rometse {amount} ho {name}. Ref {ref}. Tefello {fee}. Balanse {balance}.
Tjhelete ya hao {amount} ya odara {ref} e buseditswe akhaonteng {acc}.
Debit order ya {amount} akhaonteng {acc} e kgutlile e sa lefuwa ka la {date}. Ikopanye le lekala.
Karolo ya hao ya {amount} ya kadimo {ref} e lokela ho lefuwa ka la {date}.
Tjhelete ya sekolo ya {name} {amount} e amohetswe, rasiti {ref}. Ho setse {balance}.
O rekile motlakase wa {amount}. Mitara {ref}. Balanse ya hao ke {balance}.
Card {acc} e swaephilwe ka {amount} {place}. Avail bal {balance}.
""",
        "delivery": """
Phasela ya hao {ref} e tseleng kajeno. Mokganni o tla o letsetsa pele ho {time}.
Odara ya hao {ref} e rometswe ka la {date}, e tla fihla {day}.
Phasela {ref} e fihlile lekaleng la rona la {place}. Tloo le ID o e late pele ho {date}.
Re lekile ho tlisa odara {ref} ka {time} empa ho ne ho se motho hae. Re tla kgutla {day}.
Dumela {name}, phasela ya hao e lokile hore e latwe {place}. Ref {ref}.
Phasela {ref} e diehile ka lebaka la pula. Letsatsi le letjha ke {date}.
Odara ya hao {ref} e fihlisitswe ka {time}, e saennwe ke {name}.
Karete ya hao ya banka e lokile lekaleng la {place}. Ref {ref}. Tloo le ID.
Phasela {ref} e fetile lekgethong, e tseleng e yang {place}.
Mokganni {name} o tseleng ka odara {ref}, o tla fihla ka {time}. Nomoro ya hae {phone}.
Phasela ya meriana ya hao {ref} e emetse tleliniking ya {place} ho fihlela {time}.
Odara {ref} e tla kgutlisetswa ho moromedi haeba e sa latwa pele ho {date}.
Parcel ya hao {ref} e fihlile PEP ya {place}, tloo o tlo e lata {day}.
Ditaba tse monate, {name}! Odara ya hao {ref} e tseleng, e tla fihla {day}.
Ditaba tse monate! Phasela ya hao {ref} e fihlile {place}. E late ho tloha ka {time}.
""",
        "appointment": """
Re o hopotsa hore {name} o tla bona ngaka {day} ka {time} tleliniking ya {place}. Tloo le karete.
Nako ya hao le Ngaka {name} e netefaditswe ka la {date} ka {time}.
Dumela {name}, appointment ya hao ya {time} e suthiseditswe ka la {date}. Araba ka 1 ho netefatsa.
Appointment ya hao Home Affairs {place} ke ka la {date} ka {time}. Ref {ref}.
Ha o a tla appointment ya hao ka la {date}. Letsetsa {phone} o fumane letsatsi le leng.
{name}, tloo o tlo hlahlojwa ke ngaka {day} ka {time}. O se ke wa ja ka mora hara bosiu.
Ngaka ya meno: {name}, re tla o bona ka la {date} ka {time}. Letsetsa {phone} haeba o sa kgone.
Koloi ya hao e beheletswe service {day} ka {time}. Booking ref {ref}.
Interview ya hao ke ka la {date} ka {time} ofising ya rona {place}. Tloo le ID le mangolo.
Ngaka {name} o a kula. Appointment ya hao e ntjha ke ka la {date} ka {time}.
Ngwana {name} o tlameha ho entwa ka la {date} tleliniking ya {place} ho tloha ka {time}.
Reminder: appointment ya hao e clinic {day} ka {time}, o se ke wa dieha.
Kopano ya batswadi: nako ya hao le titjhere wa {name} ke {day} ka {time}.
""",
        "outage": """
Motlakase o tla tingwa {place} {day} ho tloha ka {time} ho fihlela {until} ka lebaka la tokiso ya mehala.
Metsi a tla kwalwa {place} ka la {date} ho tloha ka {time} ho fihlela {until}. Bolokang metsi.
Load shedding stage 4: ha ho motlakase {place} kajeno ho tloha ka {time} ho fihlela {until}.
Motlakase o kgutlile {place} ka {time}. Tlaleha diphoso tse ding ho {phone}.
Sesteme ya rona e tla kwalwa hore e lokiswe ka la {date} pakeng tsa {time} le {until}.
Netweke e a lokiswa {place} bosiung bona ho tloha ka {time}. Mehala le data di ka kgaoha.
Phaephe ya metsi e phatlohile {place}. Metsi a kwetswe ho fihlela ka {time}. Ref {ref}.
USSD le app ha di sebetse hona jwale. Re lebelletse hore di kgutle ka {time}.
Re fumane tlaleho {ref}: ha ho motlakase tulong ya heno. Basebetsi ba fihlile, o tla kgutla ka {time}.
Di-ATM tsa {place} ha di sebetse {day} ho tloha ka {time} hobane ho lokiswa sesteme.
Fibre ya {place} e kgaohile ho tloha ka {time}. E tla lokiswa ka {until}.
Tsebiso: metsi a tla kwalwa tulong ya heno {day} ka {time} hore ho lokiswe diphaephe.
Eskom: power off {place} {day} from {time} ho fihlela {until}, ho a lokiswa.
""",
    },
    "tn": {
        "passcode": """
Khoutu ya gago ya netefatso ya {brand} ke {code}. E dira metsotso e {n}.
{code} ke khoutu ya gago ya {brand}. O se ka wa e bolelela ope.
Dirisa {code} go tsena mo {brand}.
PIN ya gago ya gangwe fela ke {code}. E kopilwe ka {time} ka {date}.
OTP: {code}. E dira metsotso e {n}. Fa e se wena, leletsa {phone}.
{name}, khoutu ya gago ya go tsena mo {brand} ke {code}.
Tsenya khoutu {code} go netefatsa nomoro ya gago e ntšhwa.
Khoutu ya go fetola phasewete ya gago ke {code}. Fa o sa e kopa, tlhokomologa molaetsa o.
Khoutu {code} e letla tuelo ya {amount} kwa go {name}.
{brand}: {code} ke khoutu ya gago ya tshireletso. Ga re kitla re go leletsa go e kopa.
Dumela {name}, dirisa OTP {code} go fetsa ikwadiso ya gago.
PIN ya go tsaya phasela {ref} ke {code}. E bontshe mokgweetsi.
OTP ya gago ke {code}, please o se ka wa e fa motho.
""",
        "money": """
{amount} e ntshitswe mo akhaonteng ya gago e e felelang ka {acc} ATM ya {place} ka {date}. Go setse {balance}.
O amogetse {amount} go tswa go {name}. Ref {ref}. Balanse e ntšhwa ke {balance}.
O duetse {amount} kwa {place} Spar ka karata {acc} ka {date} ka {time}. Go setse {balance}.
Akhaonto {acc} e tsentswe {amount} ka {date}. Ref: tuelo ya tiro.
Debit order ya {amount} ya phitlho e dule mo akhaonteng {acc}. Go setse {balance}.
Tuelo ya {amount} e amogetswe ka {date}. Rasiti {ref}. Re a leboga, {name}.
Madi a a mo akhaonteng {acc} ke {balance} ka {time} ka {date}.
O rometse {amount} kwa go {name}. Ref {ref}. Tefiso {fee}. Balanse {balance}.
Madi a gago {amount} a oda {ref} a buseditswe mo akhaonteng {acc}.
Debit order ya {amount} mo akhaonteng {acc} e boile e sa duelwa ka {date}. Ikgolaganye le lekala.
Karolo ya gago ya {amount} ya kadimo {ref} e tshwanetse go duelwa ka {date}.
Madi a sekolo a ga {name} {amount} a amogetswe, rasiti {ref}. Go setse {balance}.
O rekile motlakase wa {amount}. Mitara {ref}. Balanse ya gago ke {balance}.
Card {acc} e swaephilwe ka {amount} kwa {place}. Avail bal {balance}.
""",
        "delivery": """
Phasela ya gago {ref} e mo tseleng gompieno. Mokgweetsi o tla go leletsa pele ga {time}.
Oda ya gago {ref} e rometswe ka {date}, e tla goroga {day}.
Phasela {ref} e gorogile kwa lekaleng la rona la {place}. Tlaya le ID o e tseye pele ga {date}.
Re lekile go tlisa oda {ref} ka {time} mme go ne go sena ope kwa gae. Re tla boa {day}.
Dumela {name}, phasela ya gago e siametse go tsewa kwa {place}. Ref {ref}.
Phasela {ref} e diegile ka ntlha ya pula. Letlha le lesha ke {date}.
Oda ya gago {ref} e gorosiwe ka {time}, e saennwe ke {name}.
Karata ya gago ya banka e siame kwa lekaleng la {place}. Ref {ref}. Tlaya le ID.
Phasela {ref} e fetile kwa lekgethong, e mo tseleng e e yang {place}.
Mokgweetsi {name} o mo tseleng ka oda {ref}, o tla goroga ka {time}. Nomoro ya gagwe {phone}.
Phasela ya melemo ya gago {ref} e letile kwa kliniking ya {place} go fitlha {time}.
Oda {ref} e tla busediwa kwa moromeding fa e sa tsewe pele ga {date}.
Parcel ya gago {ref} e gorogile kwa PEP ya {place}, tlaya o tle go e tsaya {day}.
Dikgang tse di monate, {name}! Oda ya gago {ref} e mo tseleng, e tla goroga {day}.
Dikgang tse di monate! Phasela ya gago {ref} e gorogile kwa {place}. E tseye go simolola ka {time}.
""",
        "appointment": """
Re go gopotsa gore {name} o tla bona ngaka {day} ka {time} kwa kliniking ya {place}. Tlaya le karata.
Nako ya gago le Ngaka {name} e netefaditswe ka {date} ka {time}.
Dumela {name}, appointment ya gago ya {time} e suteditswe kwa go {date}. Araba ka 1 go netefatsa.
Appointment ya gago kwa Home Affairs {place} ke ka {date} ka {time}. Ref {ref}.
Ga o a tla kwa appointment ya gago ka {date}. Leletsa {phone} o bone letlha le lengwe.
{name}, tlaya o tle go tlhatlhobiwa ke ngaka {day} ka {time}. O se ka wa ja morago ga bosigogare.
Ngaka ya meno: {name}, re tla go bona ka {date} ka {time}. Leletsa {phone} fa o sa kgone go tla.
Koloi ya gago e beeleditswe service {day} ka {time}. Booking ref {ref}.
Interview ya gago ke ka {date} ka {time} kwa ofising ya rona ya {place}. Tlaya le ID le ditifikeiti.
Ngaka {name} o a lwala. Appointment ya gago e ntšhwa ke ka {date} ka {time}.
Lesea {name} le tshwanetse go entiwa ka {date} kwa kliniking ya {place} go simolola ka {time}.
Reminder: appointment ya gago kwa clinic {day} ka {time}, o se ka wa diega.
Kopano ya batsadi: nako ya gago le morutabana wa ga {name} ke {day} ka {time}.
""",
        "outage": """
Motlakase o tla tingwa kwa {place} {day} go simolola ka {time} go fitlha {until} ka ntlha ya paakanyo.
Metsi a tla kwalwa kwa {place} ka {date} go simolola ka {time} go fitlha {until}. Bolokang metsi.
Load shedding stage 4: ga go na motlakase kwa {place} gompieno go tloga ka {time} go fitlha {until}.
Motlakase o boile kwa {place} ka {time}. Begela {phone} diphoso tse dingwe.
Sisiteme ya rona e tla kwalwa gore e paakanngwe ka {date} magareng ga {time} le {until}.
Netweke e a paakanngwa kwa {place} bosigong jono go simolola ka {time}. Megala le data di ka kgaoga.
Peipi ya metsi e thubegile kwa {place}. Metsi a tswetswe go fitlha ka {time}. Ref {ref}.
USSD le app ga di dire ga jaana. Re solofela gore di boe ka {time}.
Re amogetse pego {ref}: ga go na motlakase mo kgaolong ya gago. Badiri ba gorogile, o tla boa ka {time}.
Di-ATM tsa {place} ga di dire {day} go simolola ka {time} ka gonne go paakanngwa sesteme.
Fibre ya {place} e kgaogile go simolola ka {time}. E tla paakanngwa ka {until}.
Kitsiso: metsi a tla kwalwa mo tikologong ya gago {day} ka {time} gore go paakanngwe dipeipi.
Eskom: power off kwa {place} {day} from {time} go fitlha {until}, go a paakanngwa.
""",
    },
    "nso": {
        "passcode": """
Khoutu ya gago ya netefatšo ya {brand} ke {code}. E šoma metsotso ye {n}.
{code} ke khoutu ya gago ya {brand}. O se ke wa e botša motho.
Šomiša {code} go tsena go {brand}.
PIN ya gago ya gatee fela ke {code}. E kgopetšwe ka {time} ka la {date}.
OTP: {code}. E šoma metsotso ye {n}. Ge e se wena, leletša {phone}.
{name}, khoutu ya gago ya go tsena go {brand} ke {code}.
Tsenya khoutu {code} go netefatša nomoro ya gago ye mpsha.
Khoutu ya go fetola phasewete ya gago ke {code}. Ge o sa e kgopela, hlokomologa molaetša wo.
Khoutu {code} e dumelela tefo ya {amount} go {name}.
{brand}: {code} ke khoutu ya gago ya tšhireletšo. Re ka se go leletše go e kgopela.
Thobela {name}, šomiša OTP {code} go fetša ngwadišo ya gago.
PIN ya go tšea phasela {ref} ke {code}. E bontšhe mootledi.
OTP ya gago ke {code}, please o se ke wa e fa motho.
""",
        "money": """
{amount} e ntšhitšwe akhaonteng ya gago yeo e felelago ka {acc} ATM ya {place} ka {date}. Go šetše {balance}.
O amogetše {amount} go tšwa go {name}. Ref {ref}. Palanse ye mpsha ke {balance}.
O lefile {amount} go {place} Spar ka karata {acc} ka la {date} ka {time}. Go šetše {balance}.
Akhaonto {acc} e tsentšwe {amount} ka la {date}. Ref: moputso.
Debit order ya {amount} ya poloko e tšwile akhaonteng {acc}. Go šetše {balance}.
Tefo ya {amount} e amogetšwe ka la {date}. Rasiti {ref}. Re a leboga, {name}.
Tšhelete ye e lego akhaonteng {acc} ke {balance} ka {time} ka la {date}.
O rometše {amount} go {name}. Ref {ref}. Tefelo {fee}. Palanse {balance}.
Tšhelete ya gago {amount} ya otara {ref} e bušeditšwe akhaonteng {acc}.
Debit order ya {amount} akhaonteng {acc} e boile e sa lefiwa ka la {date}. Ikgokaganye le lekala.
Karolo ya gago ya {amount} ya kadimo {ref} e swanetše go lefiwa ka la {date}.
Tšhelete ya sekolo ya {name} {amount} e amogetšwe, rasiti {ref}. Go šetše {balance}.
O rekile mohlagase wa {amount}. Mitara {ref}. Palanse ya gago ke {balance}.
Card {acc} e swaephilwe ka {amount} go {place}. Avail bal {balance}.
""",
        "delivery": """
Phasela ya gago {ref} e tseleng lehono. Mootledi o tla go leletša pele ga {time}.
Otara ya gago {ref} e rometšwe ka la {date}, e tla fihla {day}.
Phasela {ref} e fihlile lekaleng la rena la {place}. Etla le ID o e tšee pele ga {date}.
Re lekile go tliša otara {ref} ka {time} eupša go be go se na motho gae. Re tla boa {day}.
Thobela {name}, phasela ya gago e loketše go tšewa go la {place}. Ref {ref}.
Phasela {ref} e diegile ka lebaka la pula. Letšatši le leswa ke {date}.
Otara ya gago {ref} e fihlišitšwe ka {time}, e saennwe ke {name}.
Karata ya gago ya panka e lokile lekaleng la {place}. Ref {ref}. Etla le ID.
Phasela {ref} e fetile kua lekgethong, e tseleng ya go ya {place}.
Mootledi {name} o tseleng ka otara {ref}, o tla fihla ka {time}. Nomoro ya gagwe {phone}.
Phasela ya dihlare tša gago {ref} e letile kliniking ya {place} go fihla ka {time}.
Otara {ref} e tla bušetšwa go moromedi ge e sa tšewe pele ga {date}.
Parcel ya gago {ref} e fihlile PEP ya {place}, etla o e tšee {day}.
Ditaba tše bose, {name}! Otara ya gago {ref} e tseleng, e tla fihla {day}.
Ditaba tše bose! Phasela ya gago {ref} e fihlile {place}. E tšee go thoma ka {time}.
""",
        "appointment": """
Re go gopotša gore {name} o tlo bona ngaka {day} ka {time} kliniking ya {place}. Etla le karata.
Nako ya gago le Ngaka {name} e netefaditšwe ka la {date} ka {time}.
Thobela {name}, appointment ya gago ya {time} e šuthišeditšwe go la {date}. Araba ka 1 go netefatša.
Appointment ya gago go la Home Affairs {place} ke ka la {date} ka {time}. Ref {ref}.
Ga wa tla appointmenteng ya gago ka la {date}. Leletša {phone} o hwetše letšatši le lengwe.
{name}, etla o tlo hlahlobja ke ngaka {day} ka {time}. O se ke wa ja ka morago ga gare ga bošego.
Ngaka ya meno: {name}, re tla go bona ka la {date} ka {time}. Leletša {phone} ge o sa kgone go tla.
Koloi ya gago e beeleditšwe service {day} ka {time}. Booking ref {ref}.
Interview ya gago ke ka la {date} ka {time} ofising ya rena ya {place}. Etla le ID le mangwalo.
Ngaka {name} o a lwala. Appointment ya gago ye mpsha ke ka la {date} ka {time}.
Lesea {name} le swanetše go entwa ka la {date} kliniking ya {place} go thoma ka {time}.
Reminder: appointment ya gago clinic {day} ka {time}, o se ke wa diega.
Kopano ya batswadi: nako ya gago le morutiši wa {name} ke {day} ka {time}.
""",
        "outage": """
Mohlagase o tla tingwa {place} {day} go thoma ka {time} go fihla {until} ka lebaka la tokišo ya dithapo.
Meetse a tla tswalelwa {place} ka la {date} go thoma ka {time} go fihla {until}. Bolokang meetse.
Load shedding stage 4: ga go na mohlagase {place} lehono go thoma ka {time} go fihla {until}.
Mohlagase o boile {place} ka {time}. Bega diphošo tše dingwe go {phone}.
Sisteme ya rena e tla tswalelwa gore e lokišwe ka la {date} magareng ga {time} le {until}.
Netweke e a lokišwa {place} bošegong bjo go thoma ka {time}. Megala le data di ka kgaoga.
Phaephe ya meetse e thubegile {place}. Meetse a tswaletšwe go fihla ka {time}. Ref {ref}.
USSD le app ga di šome ga bjale. Re letetše gore di boe ka {time}.
Re hweditše pego {ref}: ga go na mohlagase lefelong la gago. Bašomi ba fihlile, o tla boa ka {time}.
Di-ATM tša {place} ga di šome {day} go thoma ka {time} ka ge go lokišwa sisteme.
Fibre ya {place} e kgaogile go thoma ka {time}. E tla lokišwa ka {until}.
Tsebišo: meetse a tla tswalelwa lefelong la gago {day} ka {time} gore go lokišwe diphaephe.
Eskom: power off {place} {day} from {time} go fihla {until}, go a lokišwa.
""",
    },
}

# Lines that point somewhere or say thanks, and offer nothing; those under a family belong to it alone.
_TAILS: Final[Mapping[str, str]] = {
    "en": """
passcode: Do not share it.
passcode: Never share this code with anyone.
passcode: We will never ask you for it.
money: Thank you for banking with us.
money: Not you? Call {phone}.
money: Dial *151# for help.
delivery: Download our app to track it.
delivery: Track it at https://track.example.com/{ref}.
appointment: Phone {phone} to change the time.
appointment: Please arrive 10 minutes early.
outage: We apologise for the inconvenience.
outage: Updates are in our app.
any: Queries: {phone}.
any: Reply STOP to end alerts.
any: Thank you.
any: Thank you for choosing us.
any: WhatsApp us on {phone} for help.
any: Details: https://www.example.com/help
delivery: Thank you for shopping with us.
""",
    "af": """
passcode: Moenie dit met enigiemand deel nie.
passcode: Ons sal jou nooit daarvoor vra nie.
money: Dankie dat jy by ons bank.
money: Nie jy nie? Bel {phone}.
money: Skakel *120*3279# vir hulp.
delivery: Laai ons toep af om dit te volg.
delivery: Volg dit by https://track.example.com/{ref}.
appointment: Bel {phone} om die tyd te verander.
outage: Ons vra om verskoning vir die ongerief.
any: Navrae: {phone}.
any: Antwoord STOP om kennisgewings te stop.
any: Dankie.
any: Dankie dat jy ons gekies het.
any: WhatsApp ons by {phone} vir hulp.
any: Meer by https://www.example.com/help
delivery: Dankie dat jy by ons gekoop het.
""",
    "sn": """
passcode: Musaudza munhu kodhi iyi.
passcode: Hatimboibvunzi parunhare.
money: Tinotenda nekubhanga nesu.
money: Kana musiri imi, fonai {phone}.
money: Dhayara *151# kuti mubatsirwe.
delivery: Isai app yedu mufoni kuti muione pairi.
appointment: Fonai {phone} kana muchida kuchinja nguva.
outage: Tinokumbira ruregerero.
any: Mibvunzo: {phone}.
any: Pindurai STOP kuti meseji idzi dzimire.
any: Tatenda.
any: Tinotenda nekusarudza isu.
any: WhatsApp {phone} kana muchida rubatsiro.
any: Zvimwe pa https://www.example.com/help
delivery: Tinotenda nekutenga nesu.
""",
    "nd": """
passcode: Ungatsheli muntu ikhodi le.
passcode: Asisoze sikubuze yona.
money: Siyabonga ngokubhanka lathi.
money: Nxa kungasuwe, fona ku-{phone}.
money: Cindezela *151# ukuthola uncedo.
delivery: Faka i-app yethu ukuze uyilandele.
appointment: Fona ku-{phone} nxa ufuna ukutshintsha isikhathi.
outage: Siyaxolisa ngokuphazamiseka.
any: Imibuzo: {phone}.
any: Phendula STOP ukumisa imilayezo le.
any: Siyabonga.
any: Siyabonga ngokukhetha thina.
any: WhatsApp {phone} nxa udinga uncedo.
any: Okunye ku https://www.example.com/help
delivery: Siyabonga ngokuthenga kithi.
""",
    "zu": """
passcode: Ungayitsheli noma ubani le khodi.
passcode: Asisoze sakucela yona.
money: Siyabonga ngokubhanka nathi.
money: Uma kungewena, shayela u-{phone}.
money: Shayela *120*3279# ukuze uthole usizo.
delivery: Landa i-app yethu ukuze uyilandelele.
appointment: Shayela u-{phone} uma ufuna ukushintsha isikhathi.
outage: Siyaxolisa ngokuphazamiseka.
any: Imibuzo: {phone}.
any: Phendula ngo-STOP ukumisa lezi zaziso.
any: Siyabonga.
any: Siyabonga ngokukhetha thina.
any: WhatsApp {phone} uma udinga usizo.
any: Okuningi ku https://www.example.com/help
delivery: Siyabonga ngokuthenga kithi.
""",
    "xh": """
passcode: Musa ukuyixelela nabani na le khowudi.
passcode: Asisoze sikucele yona.
money: Enkosi ngokubhanka nathi.
money: Ukuba asinguwe, tsalela u-{phone}.
money: Cofa *120*3279# ukufumana uncedo.
delivery: Khuphela i-app yethu ukuze uyilandele.
appointment: Tsalela u-{phone} ukuba ufuna ukutshintsha ixesha.
outage: Siyaxolisa ngokuphazamiseka.
any: Imibuzo: {phone}.
any: Phendula ngo-STOP ukuyeka ezi zaziso.
any: Enkosi.
any: Enkosi ngokukhetha thina.
any: WhatsApp {phone} ukuba ufuna uncedo.
any: Okunye ku https://www.example.com/help
delivery: Enkosi ngokuthenga kuthi.
""",
    "st": """
passcode: O se ke wa e bolella motho.
passcode: Re ke ke ra o kopa yona.
money: Re leboha ha o banka le rona.
money: Haeba e se wena, letsetsa {phone}.
money: Letsetsa *120*3279# bakeng sa thuso.
delivery: Jarolla app ya rona ho e latela.
appointment: Letsetsa {phone} haeba o batla ho fetola nako.
outage: Re kopa tshwarelo ka tshitiso.
any: Dipotso: {phone}.
any: Araba ka STOP ho emisa ditsebiso tsena.
any: Re a leboha.
any: Re leboha ha o re kgethile.
any: WhatsApp {phone} haeba o hloka thuso.
any: Tse ding ho https://www.example.com/help
delivery: Re leboha ha o rekile ho rona.
""",
    "tn": """
passcode: O se ka wa e bolelela ope.
passcode: Ga re kitla re go kopa yona.
money: Re lebogela go banka ga gago le rona.
money: Fa e se wena, leletsa {phone}.
money: Leletsa *120*3279# go bona thuso.
delivery: Tsenya app ya rona go e sala morago.
appointment: Leletsa {phone} fa o batla go fetola nako.
outage: Re kopa maitshwarelo ka tshoreletsego.
any: Dipotso: {phone}.
any: Araba ka STOP go emisa dikitsiso tse.
any: Re a leboga.
any: Re leboga go bo o re tlhophile.
any: WhatsApp {phone} fa o tlhoka thuso.
any: Tse dingwe kwa https://www.example.com/help
delivery: Re leboga go bo o rekile mo go rona.
""",
    "nso": """
passcode: O se ke wa e botša motho.
passcode: Re ka se go kgopele yona.
money: Re leboga ge o panka le rena.
money: Ge e se wena, leletša {phone}.
money: Leletša *120*3279# go hwetša thušo.
delivery: Laolla app ya rena go e latela.
appointment: Leletša {phone} ge o nyaka go fetola nako.
outage: Re kgopela tshwarelo ka tshitišo.
any: Dipotšišo: {phone}.
any: Araba ka STOP go emiša ditsebišo tše.
any: Re a leboga.
any: Re leboga ge o re kgethile.
any: WhatsApp {phone} ge o nyaka thušo.
any: Tše dingwe go https://www.example.com/help
delivery: Re leboga ge o rekile go rena.
""",
}
_COUNTRIES: Final = {**dict.fromkeys(LANGUAGES, ("ZA",)), "en": ("ZW", "ZA"), "sn": ("ZW",), "nd": ("ZW",)}
_SENDERS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "ZW": {
        "passcode": ("EcoCash", "InnBucks", "CBZ", "Steward Bank", "OneMoney", "Econet", "Mukuru"),
        "money": ("EcoCash", "CABS", "CBZ", "Stanbic", "ZB Bank", "InnBucks", "FBC", "O'mari"),
        "delivery": ("Zimpost", "FedEx Zimbabwe", "DHL", "Swift", "OK Zimbabwe", "Zim Courier"),
        "appointment": (
            "Parirenyatwa",
            "Mpilo Hospital",
            "CIMAS",
            "PSMI",
            "Avenues Clinic",
            "Passport Office",
        ),
        "outage": ("ZETDC", "ZESA", "City of Harare", "BCC", "TelOne", "NetOne", "Econet"),
    },
    "ZA": {
        "passcode": ("Capitec", "FNB", "Absa", "Takealot", "Discovery", "SARS", "Vodacom", "TymeBank"),
        "money": (
            "Capitec",
            "FNB :-)",
            "Absa",
            "Standard Bank",
            "Nedbank",
            "TymeBank",
            "SASSA",
            "Shoprite Money",
        ),
        "delivery": (
            "Takealot",
            "The Courier Guy",
            "PostNet",
            "PAXI",
            "Pargo",
            "Checkers Sixty60",
            "SA Post Office",
        ),
        "appointment": (
            "Netcare",
            "Mediclinic",
            "Dis-Chem Clinic",
            "Home Affairs",
            "Clicks Clinic",
            "Vukuzazi",
        ),
        "outage": ("Eskom", "City Power", "Joburg Water", "eThekwini", "City of Cape Town", "Telkom", "MTN"),
    },
}
_PLACES: Final[Mapping[str, Sequence[str]]] = {
    "ZW": ("Avondale", "Borrowdale", "Mbare", "Gweru", "Mutare", "Bulawayo", "Nkulumane", "Chitungwiza"),
    "ZA": ("Menlyn", "Soweto", "Durban", "Mthatha", "Polokwane", "Rustenburg", "Welkom", "Bellville"),
}
_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "en": ("Grace", "John Smith", "Lerato", "Tendai", "Priya Naidoo"),
    "af": ("Pieter", "Anneke", "Johan Botha", "Elna", "Danie"),
    "sn": ("Tendai", "Rudo Moyo", "Farai", "Chipo", "Tatenda"),
    "nd": ("Sipho", "Nomalanga", "Themba Ndlovu", "Sibusiso", "Thandeka"),
    "zu": ("Sipho", "Nokuthula", "Bongani Zulu", "Zanele", "Sbu"),
    "xh": ("Luyanda", "Nosipho", "Andile Mbeki", "Siyabonga", "Yonela"),
    "st": ("Thabo", "Palesa", "Tshepo Mokoena", "Dineo", "Lerato"),
    "tn": ("Kagiso", "Boitumelo", "Tebogo Molefe", "Neo", "Lesego"),
    "nso": ("Mpho", "Mokgadi", "Lesetja Maponya", "Tumelo", "Kgothatso"),
}
_DAYS: Final[Mapping[str, Sequence[str]]] = {
    "en": ("on Monday", "on Tuesday", "on Thursday", "tomorrow"),
    "af": ("Maandag", "Dinsdag", "Donderdag", "môre"),
    "sn": ("neMuvhuro", "neChipiri", "neChina", "mangwana"),
    "nd": ("ngoMvulo", "ngoLwesibili", "ngoLwesine", "kusasa"),
    "zu": ("ngoMsombuluko", "ngoLwesibili", "ngoLwesine", "kusasa"),
    "xh": ("ngoMvulo", "ngoLwesibini", "ngoLwesine", "ngomso"),
    "st": ("ka Mantaha", "ka Labobedi", "ka Labone", "hosane"),
    "tn": ("ka Mosupologo", "ka Labobedi", "ka Labone", "kamoso"),
    "nso": ("ka Mošupologo", "ka Labobedi", "ka Labone", "gosasa"),
}
_MONTHS: Final = ("Jan", "Feb", "March", "April", "May", "June", "July", "Aug", "Sept", "Oct", "Nov", "Dec")


def service_messages() -> Iterator[tuple[str, str, str]]:
    """Yield language, family and text; languages and families alternate, so that any slice has them all."""
    rng = random.Random(SEED)
    kinds = list(product(LANGUAGES, FAMILIES))
    frames = {(language, family): lines(_FRAMES[language][family]) for language, family in kinds}
    seen: set[str] = set()
    for number in range(MESSAGES):
        language, family = kinds[number % len(kinds)]
        wordings = frames[language, family]
        frame = wordings[number // len(kinds) % len(wordings)]
        text = _message(rng, language, family, frame)
        while text in seen:
            text = _message(rng, language, family, frame)
        seen.add(text)
        yield language, family, text


def lines(written: str) -> Sequence[str]:
    return written.strip().split("\n")


def _message(rng: random.Random, language: str, family: str, frame: str) -> str:
    country = rng.choice(_COUNTRIES[language])
    sender = rng.choice(_SENDERS[country][family])
    text = frame
    if rng.randrange(10) < TAILS_IN_TEN:
        owned = (line.split(": ", 1) for line in lines(_TAILS[language]))
        text += " " + rng.choice([tail for owner, tail in owned if owner in {family, "any"}])
    text = text.format(**_values(rng, language, country, sender))
    if rng.randrange(10) < TYPOS_IN_TEN:
        text = _misspell(rng, text)
    if sender not in text:
        text = rng.choice((f"{sender}: {text}", f"{sender} - {text}", f"{text} {sender}", text))
    if rng.randrange(10) < ONE_CASE_IN_TEN:
        text = rng.choice((text.upper(), text.lower()))
    return text


def _values(rng: random.Random, language: str, country: str, sender: str) -> Mapping[str, str]:
    def figures(count: int) -> str:
        return "".join(rng.choices("0123456789", k=count))

    def amount(most: int) -> str:
        units, cents = rng.randrange(1, most), f"{rng.randrange(100):02}"
        if country == "ZW":
            return rng.choice(
                (f"USD {units}.{cents}", f"USD{units}.{cents}", f"${units}.{cents}", f"ZiG {units}.{cents}")
            )
        return rng.choice(
            (f"R{units}.{cents}", f"R{units:,}.{cents}".replace(",", " "), f"R {units},{cents}")
        )

    day, month, hour = rng.randrange(1, 29), rng.randrange(12), rng.randrange(6, 18)
    letters = "".join(rng.choices("ABCDEFGHKMNPRSTX", k=2))
    code = figures(rng.randrange(4, 9))
    return {
        "brand": sender,
        "code": rng.choice((code, code, f"{figures(3)}-{figures(3)}", f"{figures(3)} {figures(3)}")),
        "n": str(rng.choice((5, 10, 15, 30))),
        "phone": f"07712{figures(5)}" if country == "ZW" else f"082123{figures(4)}",
        "name": rng.choice(_NAMES[language]),
        "amount": amount(9000),
        "balance": amount(20_000),
        "fee": amount(10),
        "acc": rng.choice((figures(4), f"***{figures(4)}", f"..{figures(4)}", figures(10))),
        "ref": rng.choice(
            (figures(5), figures(8), f"{letters}{figures(6)}", f"{letters}{figures(4)}.{figures(4)}")
        ),
        "date": rng.choice(
            (f"{day} {_MONTHS[month]}", f"{day:02}/{month + 1:02}/2026", f"2026-{month + 1:02}-{day:02}")
        ),
        "time": rng.choice((f"{hour:02}:30", f"{hour:02}h00", f"{hour:02}:00")),
        "until": f"{hour + 4:02}:00",
        "day": rng.choice(_DAYS[language]),
        "place": rng.choice(_PLACES[country]),
    }


def _misspell(rng: random.Random, text: str) -> str:
    """Swap, drop or double a letter in one or two words."""
    words = text.split(" ")
    able = [place for place, word in enumerate(words) if word.isalpha() and len(word) >= TYPO_LETTERS_MIN]
    for place in rng.sample(able, min(len(able), rng.choice((1, 1, 2)))):
        word = words[place]
        at = rng.randrange(1, len(word) - 1)
        first, second = word[at], word[at + 1]
        words[place] = (
            word[:at] + rng.choice((second + first, second, first + first + second)) + word[at + 2 :]
        )
    return " ".join(words)


# A service sentence and an offer, one text a line.
_ADVERTS: Final[Mapping[str, str]] = {
    "en": """
Your code is 482913. Use it at checkout to get 25% off all shoes this weekend. Shop now!
482913 is your OTP. Need cash? Borrow up to R8 000 today, no paperwork. Apply now!
R450.00 paid from account 3321. Balance R210.15. You qualify for a loan of up to R50 000, dial *120# now!
You have received USD 20.00 from Tendai. Ref 88213. Buy any bundle today and get double data, dial *143# now!
Your parcel 88213 has arrived at Avondale. Get 20% off your next order, shop now at our store!
Order 4471 was delivered at 14:00. Black Friday is here: save up to 60% on TVs and fridges. Hurry!
Your appointment is on 12 May at 09:00. Book a teeth whitening now and save 30%, this month only!
Power in Soweto is off from 10:00 to 12:00. Solar kits from R4 999, buy now while stocks last!
""",
    "af": """
Jou kode is 482913. Gebruik dit en kry 25% afslag op alle skoene hierdie naweek. Koop nou!
R450.00 van rekening 3321 betaal. Saldo R210.15. Kontant nodig? Kry 'n lening tot R50 000. Doen nou aansoek!
Jou pakkie 88213 het aangekom by die tak. Kry 20% afslag op jou volgende aankoop, net hierdie week!
Bestelling 4471 is om 14:00 afgelewer. Groot uitverkoping: tot 60% afslag op TV's en yskaste!
Jou afspraak is op 12 Mei om 09:00. Bespreek nou tandebleiking en spaar 30%, net hierdie maand!
Die krag in Bellville is van 10:00 tot 12:00 af. Koop nou 'n omsetter vanaf R4 999, solank voorraad hou!
Jou saldo is R210.15. Koop 1GB en kry nog 1GB gratis vandag! Skakel *135# nou.
""",
    "sn": """
Kodhi yenyu ndeye 482913. Ishandisei muwane 25% discount pashangu dzese svondo rino. Tengai nhasi!
USD 45.00 yabviswa muaccount 3321. Kwasara USD 210.15. Munoda mari? Kweretai kusvika USD 500 nhasi!
Matambira USD 20.00 kubva kuna Rudo. Ref 88213. Tenga bundle nhasi uwane data yakapetwa kaviri mahara!
Pasuru yenyu 88213 yasvika kuAvondale. Tengai zvakare svondo rino muwane 20% discount pazvinhu zvese!
Odha 4471 yasvika na14:00. Mitengo yadzikiswa ne40% pazvinhu zvese muchitoro chedu, musasarire!
Appointment yenyu iri musi wa12 May na09:00. Uyai muchenurwe mazino ne30% discount mwedzi uno chete!
Magetsi achadzimwa kuMbare na10:00. Tengai solar yedu nemutengo wakaderera kubva paUSD 99, kurumidzai!
""",
    "nd": """
Ikhodi yakho ngu-482913. Isebenzise uthole i-discount ka-25% ezicathulweni zonke kule viki. Thenga lamuhla!
I-USD 45.00 ikhutshiwe ku-akhawunti 3321. Kusele USD 210.15. Udinga imali? Boleka kuze kufike ku-USD 500!
Wemukele i-USD 20.00 ivela kuSipho. Ref 88213. Thenga i-bundle lamuhla uthole i-data ephindwe kabili mahala!
Iphasela lakho 88213 selifikile eGweru. Thenga futhi kule viki uthole i-discount ka-20%!
I-oda 4471 ifikile ngo-14:00. Intengo zehlisiwe ngo-40% kuzo zonke izimpahla esitolo sethu, wozani!
I-appointment yakho imhla ka-12 May ngo-09:00. Woza ugezise amazinyo nge-discount ka-30% kule nyanga!
Amagetsi azacitshwa eGweru ngo-10:00. Thengani i-solar ngentengo ephansi, USD 99 kuphela, phangisani!
""",
    "zu": """
Ikhodi yakho ithi 482913. Yisebenzise uthole isaphulelo esingu-25% ezicathulweni kule mpelasonto. Shesha!
U-R450.00 ukhishwe ku-akhawunti 3321. Osele ngu-R210.15. Udinga imali? Boleka kuze kufike ku-R5 000 namuhla!
Ibhalansi yakho ngu-R210.15. Thenga i-1GB uthole enye i-1GB mahhala namuhla! Shayela *135# manje.
Iphasela lakho 88213 lifikile eDurban. Thenga futhi kuleli sonto uthole isaphulelo esingu-20%, shesha!
I-oda 4471 ilethwe ngo-14:00. Isipesheli: amanani ehlisiwe ngo-60% esitolo sethu, woza manje!
I-aphoyintimenti yakho ingo-12 May ngo-09:00. Bhukha manje uthole isaphulelo esingu-30% kule nyanga kuphela!
Ugesi uzocishwa eSoweto ngo-10:00. Thenga i-inverter yethu ngo-R4 999 kuphela, isipesheli sale viki, shesha!
""",
    "xh": """
Ikhowudi yakho ngu-482913. Yisebenzise ufumane isaphulelo se-25% kwizihlangu kule mpelaveki. Khawuleza!
I-R450.00 ikhutshiwe kwi-akhawunti 3321. Eseleyo yi-R210.15. Ufuna imali? Boleka ukuya kuthi ga kwi-R5 000!
Ibhalansi yakho yi-R210.15. Thenga i-1GB ufumane enye i-1GB simahla namhlanje! Cofa *135# ngoku.
Ipasile yakho 88213 ifikile eMthatha. Thenga kwakhona kule veki ufumane isaphulelo se-20% kwivenkile yethu!
I-odolo 4471 izisiwe ngo-14:00. Amaxabiso ehlisiwe nge-60% kuzo zonke ii-TV kwivenkile yethu, yiza ngoku!
Idinga lakho linge-12 May ngo-09:00. Bhukisha ngoku ufumane isaphulelo se-30% kule nyanga kuphela!
Umbane uza kucinywa eMthatha ngo-10:00. Thenga i-inverter nge-R4 999 kuphela, isaphulelo esikhulu!
""",
    "st": """
Khoutu ya hao ke 482913. E sebedise o fumane theolelo ya 25% ho dieta tsohle mafelong a beke. Potlaka!
R450.00 e ntshitswe akhaonteng 3321. Ho setse R210.15. O hloka tjhelete? Adima ho fihla ho R5 000 kajeno!
Balanse ya hao ke R210.15. Reka 1GB o fumane e nngwe ya 1GB mahala kajeno! Letsetsa *135# hona joale.
Phasela ya hao 88213 e fihlile Welkom. Reka hape bekeng ena o fumane theolelo ya 20%, potlaka!
Odara 4471 e fihlile ka 14:00. Theolelo e kgolo: ditheko di theotswe ka 60%, tloo hona joale!
Appointment ya hao ke ka la 12 May ka 09:00. Beheletsa hona joale o fumane theolelo ya 30% kgweding ena feela!
Motlakase o tla tingwa Welkom ka 10:00. Reka inverter ya rona ka R4 999 feela, theolelo ya beke ena, potlaka!
""",
    "tn": """
Khoutu ya gago ke 482913. E dirise o bone theolelo ya 25% mo ditlhakong tsotlhe mafelong a beke. Itlhaganele!
R450.00 e ntshitswe mo akhaonteng 3321. Go setse R210.15. A o tlhoka madi? Adima go fitlha go R5 000 gompieno!
Balanse ya gago ke R210.15. Reka 1GB o bone e nngwe ya 1GB mahala gompieno! Leletsa *135# jaanong.
Phasela ya gago 88213 e gorogile kwa Rustenburg. Reka gape mo bekeng eno o bone theolelo ya 20%!
Oda 4471 e gorogile ka 14:00. Theolelo e kgolo: ditlhotlhwa di fokoditswe ka 60% kwa lebenkeleng la rona!
Appointment ya gago ke ka 12 May ka 09:00. Beeletsa jaanong o bone theolelo ya 30% mo kgweding eno fela!
Motlakase o tla tingwa kwa Rustenburg ka 10:00. Reka inverter ka R4 999 fela, theolelo ya beke, itlhaganele!
""",
    "nso": """
Khoutu ya gago ke 482913. E šomiše o hwetše theolelo ya 25% go dieta ka moka mafelelong a beke. Akgofa!
R450.00 e ntšhitšwe akhaonteng 3321. Go šetše R210.15. O nyaka tšhelete? Adima go fihla go R5 000 lehono!
Palanse ya gago ke R210.15. Reka 1GB o hwetše ye nngwe ya 1GB mahala lehono! Leletša *135# bjale.
Phasela ya gago 88213 e fihlile Polokwane. Reka gape bekeng ye o hwetše theolelo ya 20%, akgofa!
Otara 4471 e fihlile ka 14:00. Theolelo ye kgolo: ditheko di fokoditšwe ka 60%, etla bjale!
Appointment ya gago ke ka la 12 May ka 09:00. Beeletša bjale o hwetše theolelo ya 30% kgweding ye fela!
Mohlagase o tla tingwa Polokwane ka 10:00. Reka inverter ya rena ka R4 999 fela, theolelo ya beke ye, akgofa!
""",
}


def adverts_in_service_forms() -> Iterator[tuple[str, str]]:
    """Yield language and text of adverts behind a service sentence."""
    for language, written in _ADVERTS.items():
        for text in lines(written):
            yield language, text
